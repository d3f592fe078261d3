#include "frontend/onnx/use_role.h"

#include "llvm/ADT/StringSwitch.h"

namespace fsdpc {

bool isLinearWeight(const onnx::NodeProto &node, int input) {
  return input == 1 && domainOf(node).empty() && (node.op_type() == "MatMul" || node.op_type() == "Gemm");
}

/// Roles for ops that ONNX Runtime fuses: one letter per input, w(eight), b(ias), t(able).
static UseRole microsoftRole(llvm::StringRef op, int input) {
  llvm::StringRef roles = llvm::StringSwitch<llvm::StringRef>(op)
                              .Cases("FusedMatMul", "SimplifiedLayerNormalization", ".w")
                              .Cases("FusedGemm", "FusedConv", "Attention", ".wb")
                              .Cases("BiasGelu", "FastGelu", ".b")
                              .Case("SkipLayerNormalization", "..wbb")
                              .Case("SkipSimplifiedLayerNormalization", "..wb")
                              .Case("MultiHeadAttention", "...b")
                              .Case("EmbedLayerNormalization", "..tttwb")
                              .Default("");
  char role = input < static_cast<int>(roles.size()) ? roles[input] : '.';
  return role == 'w' ? UseRole::weight : role == 'b' ? UseRole::bias : role == 't' ? UseRole::table : UseRole::other;
}

UseRole useRole(const GraphIndex &index, const InitializerRead &read) {
  const onnx::NodeProto &node = index.node(read);
  llvm::StringRef op = node.op_type();
  if (domainOf(node) == "com.microsoft")
    return microsoftRole(op, read.input);
  if (!domainOf(node).empty())
    return UseRole::other;
  if (op == "MatMul")
    return UseRole::weight;
  if (op == "Gemm")
    return read.input < 2 ? UseRole::weight : UseRole::bias;
  if (op == "Gather")
    return read.input == 0 ? UseRole::table : UseRole::other;
  if (op == "PRelu")
    return read.input == 1 ? UseRole::weight : UseRole::other;
  if (op == "Add" || op == "Sub")
    return UseRole::bias;
  if (op == "Mul" || op == "Div")
    return UseRole::weight;
  bool isRecurrent = op == "LSTM" || op == "GRU" || op == "RNN";
  if (isRecurrent && (read.input == 1 || read.input == 2 || read.input == 3 || read.input == 7))
    return read.input == 3 ? UseRole::bias : UseRole::weight;
  bool isLayer =
      llvm::StringSwitch<bool>(op)
          .Cases("Conv", "ConvTranspose", "LayerNormalization", "RMSNormalization", "BatchNormalization", true)
          .Cases("InstanceNormalization", "GroupNormalization", true)
          .Default(false);
  if (!isLayer || read.input == 0 || read.input > 4)
    return UseRole::other;
  constexpr UseRole roles[] = {UseRole::other, UseRole::weight, UseRole::bias, UseRole::mean, UseRole::variance};
  return roles[read.input];
}

} // namespace fsdpc
