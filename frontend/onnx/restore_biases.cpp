#include "frontend/onnx/classify.h"
#include "frontend/onnx/complete.h"
#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/repair.h"

namespace fsdpc {

namespace {

bool hasRoomForBias(const onnx::NodeProto &node, int input) {
  bool takesBias = node.op_type() == "Gemm" || node.op_type() == "Conv";
  return takesBias && input == 1 && (node.input_size() == 2 || (node.input_size() == 3 && node.input(2).empty()));
}

/// Number of elements of the bias for a weight.
int64_t biasElements(const onnx::NodeProto &node, const Shape &weight) {
  if (node.op_type() == "Conv")
    return weight[0];
  const onnx::AttributeProto *transposed = attributeOf(node, "transB");
  return weight[transposed && transposed->i() ? 0 : 1];
}

} // namespace

llvm::Error restoreBiases(const Repair &repair) {
  GraphIndex index(repair.model.graph());
  ExportSignature signature = exportSignature(index.graph);
  std::vector<std::string> absent = findMissing(repair.model, index, signature).zeroBiases;
  if (!absent.empty() && !repair.options.restoreBiases)
    repair.remarks.push_back(std::to_string(absent.size()) + " biases, '" + absent.front() +
                             "' the first, are not in the file: the exporter drops those that are zero "
                             "(--restore_biases brings them back)");
  if (absent.empty() || !repair.options.restoreBiases)
    return llvm::Error::success();
  std::vector<InitializerRole> roles = classifyInitializers(repair.model, index, signature);
  llvm::StringMap<int> byName;
  for (size_t i = 0; i < roles.size(); ++i)
    byName[roles[i].name] = static_cast<int>(i);
  GraphEdit edit(repair.model.graph());
  for (const std::string &name : absent) {
    size_t at = name.rfind("bias");
    auto weight = byName.find(name.substr(0, at) + "weight" + name.substr(at + 4));
    bool restored = false;
    if (weight != byName.end())
      for (const InitializerRead &read : index.readsOf(index.graph.initializer(weight->second).name())) {
        const onnx::NodeProto &node = index.node(read);
        if (!hasRoomForBias(node, read.input))
          continue;
        if (!restored)
          edit.addZeros(name, {biasElements(node, shapeOf(index.graph.initializer(weight->second)))},
                        "was dropped, zeros");
        restored = true;
        if (node.input_size() == 2)
          repair.model.graph().mutable_node(read.node)->add_input();
        edit.setInput(read.node, 2, name);
      }
    repair.remarks.push_back("'" + name + "' " +
                             (restored ? "is back, as zeros" : "is not in the file, and no node has room for it"));
  }
  edit.apply();
  return llvm::Error::success();
}

} // namespace fsdpc
