// The producer and the consumers of each value of the top-level graph. Valid until the graph is edited.
#pragma once

#include "frontend/onnx/model.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

/// A read of a value: input `input` of node `node`.
struct Read {
  int node = 0;
  int input = 0;
};

/// A node input that reads an initializer, seen through Identity and Transpose nodes.
struct InitializerRead {
  int node = 0;
  int input = 0;
  std::string value; ///< the node's input: the initializer itself or an alias of it
  std::string alias; ///< the last Identity output on the way; "" if there is none
  Shape permutation; ///< the value's dim i is the initializer's dim permutation[i]; empty: identity
};

class GraphIndex {
public:
  explicit GraphIndex(const onnx::GraphProto &graph);

  const onnx::GraphProto &graph;
  std::vector<std::string> scopes; ///< of nodes, by position

  const onnx::TensorProto *initializer(llvm::StringRef name) const;
  /// Position of an initializer in the file, -1 if there is none of the name.
  int initializerPosition(llvm::StringRef name) const;
  /// Reads of one initializer by nodes other than Identity and Transpose, in node order. Graph outputs do not count.
  llvm::ArrayRef<InitializerRead> readsOf(llvm::StringRef initializer) const;
  /// The node that produces a value; null for inputs and initializers.
  const onnx::NodeProto *producer(llvm::StringRef value) const;
  int producerPosition(llvm::StringRef value) const; ///< -1 for none
  llvm::ArrayRef<Read> consumers(llvm::StringRef value) const;
  /// Initializers in the order of their first read, unread ones last.
  std::vector<int> initializersByFirstRead() const;
  const onnx::NodeProto &node(const InitializerRead &read) const { return graph.node(read.node); }

private:
  void followAliases();
  llvm::StringMap<int> initializers, producers;
  llvm::StringMap<std::vector<Read>> consumersOf;
  std::vector<std::vector<InitializerRead>> reads;
};

} // namespace fsdpc
