#include "frontend/onnx/flat_graph.h"

#include "frontend/onnx/function_calls.h"

namespace fsdpc {

Refusal tooManyNodes() {
  return {"unrolled, the model has more than " + std::to_string(maxExpandedNodes) +
          " nodes or 2 GiB. Use shorter inputs, or fewer iterations"};
}

FlatGraph::FlatGraph(OnnxModel &model, llvm::ArrayRef<GraphInput> inputs) : model(model), known(model, inputs) {
  const onnx::GraphProto &graph = model.graph();
  for (const onnx::TensorProto &tensor : graph.initializer())
    used.insert(tensor.name());
  for (const onnx::ValueInfoProto &input : graph.input())
    used.insert(input.name());
  for (const onnx::NodeProto &node : graph.node())
    for (const std::string &output : node.output())
      used.insert(output);
}

std::string FlatGraph::unusedName(const std::string &wanted) {
  std::string name = wanted;
  while (!used.insert(name).second)
    name = wanted + "_" + std::to_string(++collisions);
  return name;
}

void FlatGraph::add(onnx::NodeProto node) {
  bytes += static_cast<int64_t>(node.ByteSizeLong());
  if (nodes.size() >= maxExpandedNodes || bytes > maxExpandedBytes)
    throw tooManyNodes();
  *nodes.Add() = std::move(node);
  known.add(nodes[nodes.size() - 1]);
}

std::string FlatGraph::addInitializer(const onnx::TensorProto &tensor) {
  onnx::TensorProto *copy = model.graph().add_initializer();
  *copy = tensor;
  copy->set_name(unusedName(tensor.name()));
  known.add(*copy);
  return copy->name();
}

std::string FlatGraph::addNode(llvm::StringRef op, const Names &inputs, const std::string &wanted,
                               std::optional<int64_t> axis) {
  onnx::NodeProto node;
  node.set_op_type(op.str());
  for (const std::string &input : inputs)
    node.add_input(input);
  std::string name = unusedName(wanted);
  node.add_output(name);
  node.set_name(name);
  if (axis) {
    onnx::AttributeProto *attribute = node.add_attribute();
    attribute->set_name("axis");
    attribute->set_type(onnx::AttributeProto::INT);
    attribute->set_i(*axis);
  }
  add(std::move(node));
  return name;
}

std::string FlatGraph::addConstant(int64_t value, bool isBool, bool isLine, const std::string &wanted) {
  onnx::NodeProto node;
  node.set_op_type("Constant");
  std::string name = unusedName(wanted);
  node.add_output(name);
  node.set_name(name);
  onnx::AttributeProto *attribute = node.add_attribute();
  attribute->set_name("value");
  attribute->set_type(onnx::AttributeProto::TENSOR);
  attribute->mutable_t()->set_data_type(isBool ? onnx::TensorProto::BOOL : onnx::TensorProto::INT64);
  if (isLine)
    attribute->mutable_t()->add_dims(1);
  if (isBool)
    attribute->mutable_t()->add_int32_data(value != 0);
  else
    attribute->mutable_t()->add_int64_data(value);
  add(std::move(node));
  return name;
}

} // namespace fsdpc
