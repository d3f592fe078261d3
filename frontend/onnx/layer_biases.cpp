#include "frontend/onnx/layer_biases.h"

#include "frontend/onnx/use_role.h"
#include "llvm/ADT/StringSwitch.h"

namespace fsdpc {

namespace {

/// The name of the initializer, through Identity and Transpose nodes; "" if there is none.
std::string sourceInitializer(const GraphIndex &index, llvm::StringRef value) {
  constexpr int maxNodes = 4;
  for (int step = 0; step < maxNodes; ++step) {
    if (index.initializerPosition(value) >= 0)
      return value.str();
    const onnx::NodeProto *node = index.producer(value);
    if (!node || (node->op_type() != "Identity" && node->op_type() != "Transpose") || node->input_size() == 0)
      return "";
    value = node->input(0);
  }
  return "";
}

} // namespace

std::string weightOfBias(const GraphIndex &index, const InitializerRead &read) {
  const onnx::NodeProto *node = &index.node(read);
  if (useRole(index, read) != UseRole::bias)
    return "";
  if (node->op_type() == "Add" && node->input_size() == 2)
    node = index.producer(node->input(1 - read.input));
  const bool isLayer = node && llvm::StringSwitch<bool>(node->op_type())
                                   .Cases("MatMul", "Gemm", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN", true)
                                   .Default(false);
  return isLayer && node->input_size() > 1 ? sourceInitializer(index, node->input(1)) : "";
}

std::string LayerBiases::nameForWeight(llvm::StringRef initializer, llvm::StringRef weight) {
  if (listed.insert(initializer).second)
    for (bool isAliased : {false, true})
      for (const InitializerRead &read : index.readsOf(initializer))
        if (std::string beside = weightOfBias(index, read); read.alias.empty() != isAliased && !beside.empty())
          names.try_emplace((initializer + "\n" + beside).str(), isAliased ? read.alias : initializer.str());
  return names.lookup((initializer + "\n" + weight).str());
}

} // namespace fsdpc
