#include "frontend/onnx/graph_edit.h"

#include "frontend/onnx/metadata.h"
#include <algorithm>

namespace fsdpc {

constexpr llvm::StringRef aliasPrefix = "alias_";

onnx::TensorProto &GraphEdit::copyInitializer(const onnx::TensorProto &from, llvm::StringRef name,
                                              llvm::StringRef note) {
  // The new element may move the repeated field's storage, but never the message that `from` is.
  onnx::TensorProto *tensor = graph.add_initializer();
  tensor->set_name(name.str());
  copyValues(from, *tensor);
  addNote(*tensor, note);
  return *tensor;
}

void GraphEdit::addZeros(llvm::StringRef name, llvm::ArrayRef<int64_t> shape, llvm::StringRef note) {
  onnx::TensorProto *tensor = graph.add_initializer();
  tensor->set_name(name.str());
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  for (int64_t dim : shape)
    tensor->add_dims(dim);
  tensor->set_raw_data(std::string(4 * checkedElements(shape).value(), '\0'));
  addNote(*tensor, note);
  changed = true;
}

void GraphEdit::addTensor(llvm::StringRef name, int32_t onnxType, llvm::ArrayRef<int64_t> shape,
                          llvm::ArrayRef<uint8_t> bytes, llvm::StringRef note) {
  onnx::TensorProto *tensor = graph.add_initializer();
  tensor->set_name(name.str());
  tensor->set_data_type(onnxType);
  for (int64_t dim : shape)
    tensor->add_dims(dim);
  tensor->set_raw_data(std::string(bytes.begin(), bytes.end()));
  if (!note.empty())
    addNote(*tensor, note);
  changed = true;
}

std::string GraphEdit::addParameter(llvm::StringRef name, int32_t onnxType, llvm::ArrayRef<int64_t> shape,
                                    llvm::ArrayRef<uint8_t> bytes, llvm::StringRef note) {
  // Half-precision files train in f32.
  const bool isHalf = onnxType != onnx::TensorProto::FLOAT && *dtypeOf(onnxType) == DType::f32;
  addTensor(name, isHalf ? static_cast<int32_t>(onnx::TensorProto::FLOAT) : onnxType, shape, bytes, note);
  return isHalf ? addCast(name, onnxType) : name.str();
}

onnx::NodeProto &GraphEdit::addNode(llvm::StringRef op, llvm::ArrayRef<std::string> inputs) {
  onnx::NodeProto &node = newNodes.emplace_back(NewNode{insertPosition, {}}).node;
  // Node names are unique over all edits of a graph, because the first input is a parameter or was just made from one.
  node.set_name(inputs.front() + "." + op.lower() + std::to_string(madeNodes++));
  node.set_op_type(op.str());
  for (const std::string &input : inputs)
    node.add_input(input);
  node.add_output(node.name());
  changed = true;
  return node;
}

std::string GraphEdit::addIntegers(llvm::StringRef name, llvm::ArrayRef<int64_t> values,
                                   llvm::ArrayRef<int64_t> shape) {
  const std::string unique = (name + std::to_string(madeNodes++)).str();
  addTensor(unique, onnx::TensorProto::INT64, shape,
            llvm::ArrayRef(reinterpret_cast<const uint8_t *>(values.data()), values.size() * sizeof(int64_t)), "");
  return unique;
}

std::string GraphEdit::addCast(llvm::StringRef source, int32_t onnxType) {
  onnx::NodeProto &node = addNode("Cast", {source.str()});
  onnx::AttributeProto *to = node.add_attribute();
  to->set_name("to");
  to->set_type(onnx::AttributeProto::INT);
  to->set_i(onnxType);
  return node.output(0);
}

std::string GraphEdit::addReshape(llvm::StringRef source, llvm::ArrayRef<int64_t> shape) {
  std::string dims = addIntegers(source.str() + ".shape", shape, {static_cast<int64_t>(shape.size())});
  return addNode("Reshape", {source.str(), dims}).output(0);
}

std::string GraphEdit::addExpand(llvm::StringRef source, llvm::ArrayRef<int64_t> shape) {
  std::string dims = addIntegers(source.str() + ".shape", shape, {static_cast<int64_t>(shape.size())});
  return addNode("Expand", {source.str(), dims}).output(0);
}

std::string GraphEdit::addGather(llvm::StringRef table, llvm::ArrayRef<int64_t> indices,
                                 llvm::ArrayRef<int64_t> indexShape) {
  std::string rows = addIntegers(table.str() + ".rows", indices, indexShape);
  return addNode("Gather", {table.str(), rows}).output(0);
}

std::string GraphEdit::addUnary(llvm::StringRef op, llvm::StringRef source) {
  return addNode(op, {source.str()}).output(0);
}

std::string GraphEdit::addScalar(llvm::StringRef op, llvm::StringRef source, float scalar, bool isScalarFirst) {
  // Takes the form of a name that an exporter makes up. A tensor with a module's name would train.
  const std::string number = "/" + source.str() + ".number" + std::to_string(madeNodes++);
  addTensor(number, onnx::TensorProto::FLOAT, {},
            llvm::ArrayRef(reinterpret_cast<const uint8_t *>(&scalar), sizeof scalar), "");
  const std::string a = isScalarFirst ? number : source.str(), b = isScalarFirst ? source.str() : number;
  return addNode(op, {a, b}).output(0);
}

std::string GraphEdit::addStopGradient(llvm::StringRef source) {
  onnx::NodeProto &node = addNode("Identity", {source.str()});
  markStopsGradient(node);
  return node.output(0);
}

std::string GraphEdit::addRows(llvm::StringRef source, int64_t first, int64_t many) {
  const std::vector<std::string> inputs = {source.str(), addIntegers(source.str() + ".first", {first}, {1}),
                                           addIntegers(source.str() + ".end", {first + many}, {1}),
                                           addIntegers(source.str() + ".axis", {0}, {1})};
  return addNode("Slice", inputs).output(0);
}

std::string GraphEdit::addConcat(llvm::ArrayRef<std::string> sources, int64_t axis) {
  onnx::NodeProto &node = addNode("Concat", sources);
  onnx::AttributeProto *attribute = node.add_attribute();
  attribute->set_name("axis");
  attribute->set_type(onnx::AttributeProto::INT);
  attribute->set_i(axis);
  return node.output(0);
}

std::string GraphEdit::addTranspose(llvm::StringRef source, llvm::ArrayRef<int64_t> permutation) {
  onnx::NodeProto &node = addNode("Transpose", {source.str()});
  onnx::AttributeProto *attribute = node.add_attribute();
  attribute->set_name("perm");
  attribute->set_type(onnx::AttributeProto::INTS);
  for (int64_t axis : permutation)
    attribute->add_ints(axis);
  return node.output(0);
}

void GraphEdit::addNote(onnx::TensorProto &tensor, llvm::StringRef note) {
  onnx::StringStringEntryProto *entry = tensor.add_metadata_props();
  entry->set_key(recoveredKey.str());
  entry->set_value(note.str());
  changed = true;
}

void GraphEdit::addAlias(llvm::StringRef name, llvm::StringRef source, llvm::ArrayRef<int64_t> permutation) {
  onnx::NodeProto &node = newNodes.emplace_back(NewNode{insertPosition, {}}).node;
  node.set_name(aliasPrefix.str() + name.str());
  node.set_op_type(permutation.empty() ? "Identity" : "Transpose");
  node.add_input(source.str());
  node.add_output(name.str());
  if (!permutation.empty()) {
    onnx::AttributeProto *attribute = node.add_attribute();
    attribute->set_name("perm");
    attribute->set_type(onnx::AttributeProto::INTS);
    for (int64_t axis : permutation)
      attribute->add_ints(axis);
  }
  changed = true;
}

bool GraphEdit::isAlias(const onnx::NodeProto &node) {
  llvm::StringRef name = node.name();
  return node.output_size() == 1 && name.consume_front(aliasPrefix) && name == node.output(0);
}

void GraphEdit::replaceInitializer(llvm::StringRef name, llvm::StringRef source, llvm::ArrayRef<int64_t> permutation) {
  removedInitializers.insert(name);
  addAlias(name, source, permutation);
}

onnx::NodeProto &GraphEdit::addNodeAfter(int position) {
  changed = true;
  return *nodesAfter[position].emplace_back(std::make_unique<onnx::NodeProto>());
}

void GraphEdit::setInput(int node, int input, llvm::StringRef value) {
  graph.mutable_node(node)->set_input(input, value.str());
  changed = true;
}

void GraphEdit::apply() {
  if (!newNodes.empty() || !removedNodes.empty() || !nodesAfter.empty()) {
    std::stable_sort(newNodes.begin(), newNodes.end(),
                     [](const NewNode &a, const NewNode &b) { return a.before < b.before; });
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    auto next = newNodes.begin();
    std::vector<bool> isRemoved(graph.node_size());
    for (int position : removedNodes)
      isRemoved[position] = true;
    auto after = nodesAfter.begin();
    for (int i = 0; i < graph.node_size(); ++i) {
      for (; next != newNodes.end() && next->before <= i; ++next)
        nodes.Add()->Swap(&next->node);
      if (!isRemoved[i])
        nodes.Add()->Swap(graph.mutable_node(i));
      if (after == nodesAfter.end() || after->first != i)
        continue;
      for (std::unique_ptr<onnx::NodeProto> &node : after->second)
        nodes.Add()->Swap(node.get());
      ++after;
    }
    for (; next != newNodes.end(); ++next)
      nodes.Add()->Swap(&next->node);
    graph.mutable_node()->Swap(&nodes);
  }
  // Names of removed initializers remain in use as values. Only as graph inputs (IR 3) would they now have two
  // definitions.
  auto isGone = [&](const auto &message) { return removedInitializers.contains(message.name()); };
  auto *tensors = graph.mutable_initializer();
  tensors->erase(std::remove_if(tensors->begin(), tensors->end(), isGone), tensors->end());
  auto *inputs = graph.mutable_input();
  inputs->erase(std::remove_if(inputs->begin(), inputs->end(), isGone), inputs->end());
  newNodes.clear();
  nodesAfter.clear();
  removedNodes.clear();
  removedInitializers.clear();
  changed = false;
}

} // namespace fsdpc
