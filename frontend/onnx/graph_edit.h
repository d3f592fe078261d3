// Edits of a GraphProto, collected and applied in one linear sweep.
#pragma once

#include "frontend/onnx/graph_index.h"
#include "llvm/ADT/StringSet.h"
#include <map>

namespace fsdpc {

class GraphEdit {
public:
  explicit GraphEdit(onnx::GraphProto &graph) : graph(graph) {}

  /// A new initializer with the values of another. Applied at once, so positions of initializers stay valid.
  onnx::TensorProto &copyInitializer(const onnx::TensorProto &from, llvm::StringRef name, llvm::StringRef note);
  /// A new initializer of zeros.
  void addZeros(llvm::StringRef name, llvm::ArrayRef<int64_t> shape, llvm::StringRef note);
  /// Removes initializer `name` and lets a node at the start of the graph make the value from another one: its dim i is
  /// `source`'s dim permutation[i]; Identity if that is empty.
  void replaceInitializer(llvm::StringRef name, llvm::StringRef source, llvm::ArrayRef<int64_t> permutation);
  /// A new value at the start of the graph, as above.
  void addAlias(llvm::StringRef name, llvm::StringRef source, llvm::ArrayRef<int64_t> permutation);
  /// Did addAlias make the node?
  static bool isAlias(const onnx::NodeProto &node);
  /// Says what happened to an initializer in its metadata.
  void addNote(onnx::TensorProto &tensor, llvm::StringRef note);
  /// A new node right behind node `position`; those of one position keep their order. Fill it before apply().
  onnx::NodeProto &addNodeAfter(int position);
  void removeNode(int position) { removedNodes.push_back(position); }
  void setInput(int node, int input, llvm::StringRef value);
  bool isEmpty() const { return !changed; }

  /// Removals and new nodes take effect; a GraphIndex of the graph is stale from here on.
  void apply();

private:
  onnx::GraphProto &graph;
  std::vector<onnx::NodeProto> firstNodes;
  std::map<int, std::vector<std::unique_ptr<onnx::NodeProto>>> nodesAfter; ///< by position
  std::vector<int> removedNodes;
  llvm::StringSet<> removedInitializers;
  bool changed = false;
};

} // namespace fsdpc
