#include "frontend/onnx/kept_logits.h"

namespace fsdpc {

namespace {

constexpr llvm::StringLiteral inputName = "logits_to_keep";

bool isScalarInteger(const onnx::ValueInfoProto &value) {
  const auto &type = value.type().tensor_type();
  return value.type().has_tensor_type() && type.elem_type() == onnx::TensorProto::INT64 && type.has_shape() &&
         type.shape().dim_size() == 0;
}

int findInput(const onnx::GraphProto &graph) {
  for (int i = 0; i < graph.input_size(); ++i)
    if (graph.input(i).name() == inputName)
      return isScalarInteger(graph.input(i)) ? i : -1;
  return -1;
}

bool reads(const onnx::NodeProto &node, llvm::StringRef name) {
  return llvm::any_of(node.input(), [&](const std::string &input) { return input == name; });
}

/// True if the node takes one position of [B, T, d].
bool takesPosition(const onnx::NodeProto &node) {
  const onnx::AttributeProto *axis = attributeOf(node, "axis");
  return node.op_type() == "Gather" && domainOf(node).empty() && node.input_size() == 2 && node.input(0) != inputName &&
         axis && axis->i() == 1;
}

/// Drops the stated shapes of `changed` and of all values computed from them. Requires topological order.
void dropShapesAfter(onnx::GraphProto &graph, llvm::StringSet<> changed) {
  for (const onnx::NodeProto &node : graph.node())
    if (llvm::any_of(node.input(), [&](const std::string &input) { return changed.contains(input); }))
      for (const std::string &output : node.output())
        changed.insert(output);
  for (auto *values : {graph.mutable_value_info(), graph.mutable_output()})
    for (onnx::ValueInfoProto &value : *values)
      if (changed.contains(value.name()))
        value.mutable_type()->mutable_tensor_type()->clear_shape();
}

} // namespace

std::string keepAllLogits(OnnxModel &model) {
  onnx::GraphProto &graph = model.graph();
  const int input = findInput(graph);
  if (input < 0)
    return "";
  std::vector<onnx::NodeProto *> gathers;
  for (onnx::NodeProto &node : *graph.mutable_node()) {
    if (!reads(node, inputName))
      continue;
    if (!takesPosition(node))
      return "";
    gathers.push_back(&node);
  }
  if (gathers.empty())
    return "";
  llvm::StringSet<> changed;
  for (onnx::NodeProto *gather : gathers) {
    gather->set_op_type("Identity");
    gather->mutable_input()->RemoveLast();
    gather->clear_attribute();
    changed.insert(gather->output(0));
  }
  graph.mutable_input()->DeleteSubrange(input, 1);
  dropShapesAfter(graph, std::move(changed));
  return "logits of all positions are computed, as PyTorch does with logits_to_keep=0; the TorchScript exporter made "
         "that number an input and took one position, which it does not if the model's inputs are given as a tuple of "
         "tensors instead of a dict";
}

} // namespace fsdpc
