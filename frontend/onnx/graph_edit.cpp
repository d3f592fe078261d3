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

void GraphEdit::addNote(onnx::TensorProto &tensor, llvm::StringRef note) {
  onnx::StringStringEntryProto *entry = tensor.add_metadata_props();
  entry->set_key(recoveredKey.str());
  entry->set_value(note.str());
  changed = true;
}

void GraphEdit::addAlias(llvm::StringRef name, llvm::StringRef source, llvm::ArrayRef<int64_t> permutation) {
  onnx::NodeProto &node = firstNodes.emplace_back();
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
  if (!firstNodes.empty() || !removedNodes.empty() || !nodesAfter.empty()) {
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    for (onnx::NodeProto &node : firstNodes)
      nodes.Add()->Swap(&node);
    std::vector<bool> isRemoved(graph.node_size());
    for (int position : removedNodes)
      isRemoved[position] = true;
    auto after = nodesAfter.begin();
    for (int i = 0; i < graph.node_size(); ++i) {
      if (!isRemoved[i])
        nodes.Add()->Swap(graph.mutable_node(i));
      if (after == nodesAfter.end() || after->first != i)
        continue;
      for (std::unique_ptr<onnx::NodeProto> &node : after->second)
        nodes.Add()->Swap(node.get());
      ++after;
    }
    graph.mutable_node()->Swap(&nodes);
  }
  // Names of removed initializers live on as values; only as graph inputs (IR 3) would they now have two origins.
  auto isGone = [&](const auto &message) { return removedInitializers.contains(message.name()); };
  auto *tensors = graph.mutable_initializer();
  tensors->erase(std::remove_if(tensors->begin(), tensors->end(), isGone), tensors->end());
  auto *inputs = graph.mutable_input();
  inputs->erase(std::remove_if(inputs->begin(), inputs->end(), isGone), inputs->end());
  firstNodes.clear();
  nodesAfter.clear();
  removedNodes.clear();
  removedInitializers.clear();
  changed = false;
}

} // namespace fsdpc
