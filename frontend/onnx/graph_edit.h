// Edits of a GraphProto, collected and applied in one linear sweep.
#pragma once

#include "frontend/onnx/graph_index.h"
#include "llvm/ADT/StringSet.h"
#include <map>

namespace fsdpc {

class GraphEdit {
public:
  explicit GraphEdit(onnx::GraphProto &graph) : graph(graph) {}

  /// A new initializer with the values of another. Takes effect immediately, so positions of initializers stay valid.
  onnx::TensorProto &copyInitializer(const onnx::TensorProto &from, llvm::StringRef name, llvm::StringRef note);
  /// A new initializer of zeros.
  void addZeros(llvm::StringRef name, llvm::ArrayRef<int64_t> shape, llvm::StringRef note);
  /// A new initializer with the values given, in the type's own bytes.
  void addTensor(llvm::StringRef name, int32_t onnxType, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<uint8_t> bytes,
                 llvm::StringRef note);
  /// The same for a parameter, whose bytes are those of dtypeOf(type). Returns the value to read in its place, of the
  /// type given.
  std::string addParameter(llvm::StringRef name, int32_t onnxType, llvm::ArrayRef<int64_t> shape,
                           llvm::ArrayRef<uint8_t> bytes, llvm::StringRef note);
  /// New nodes from here on go in front of the node at that position; at the start of the graph before the first call.
  void insertBefore(int node) { insertPosition = node; }
  /// New nodes, in the order of the calls; each returns the name of its value.
  std::string addCast(llvm::StringRef source, int32_t onnxType);
  std::string addReshape(llvm::StringRef source, llvm::ArrayRef<int64_t> shape);
  std::string addExpand(llvm::StringRef source, llvm::ArrayRef<int64_t> shape);
  /// Rows of a table, [indexShape..., D].
  std::string addGather(llvm::StringRef table, llvm::ArrayRef<int64_t> indices, llvm::ArrayRef<int64_t> indexShape);
  std::string addUnary(llvm::StringRef op, llvm::StringRef source);
  /// An Identity that is marked by stopGradientKey.
  std::string addStopGradient(llvm::StringRef source);
  /// `op` of a value and an f32 scalar; the scalar is the first operand if `isScalarFirst`.
  std::string addScalar(llvm::StringRef op, llvm::StringRef source, float scalar, bool isScalarFirst);
  /// Elements [first, first + many) of axis 0.
  std::string addRows(llvm::StringRef source, int64_t first, int64_t many);
  std::string addConcat(llvm::ArrayRef<std::string> sources, int64_t axis);
  std::string addTranspose(llvm::StringRef source, llvm::ArrayRef<int64_t> permutation);
  /// Removes initializer `name` and adds a node that makes the value from another one: its dim i is `source`'s dim
  /// permutation[i]. The node is an Identity if `permutation` is empty.
  void replaceInitializer(llvm::StringRef name, llvm::StringRef source, llvm::ArrayRef<int64_t> permutation);
  /// Adds a node that makes the new value `name`, as above.
  void addAlias(llvm::StringRef name, llvm::StringRef source, llvm::ArrayRef<int64_t> permutation);
  /// True if addAlias made the node.
  static bool isAlias(const onnx::NodeProto &node);
  /// Records in an initializer's metadata what happened to it.
  void addNote(onnx::TensorProto &tensor, llvm::StringRef note);
  /// A new node right after node `position`. Nodes of one position keep their order. Fill it before apply().
  onnx::NodeProto &addNodeAfter(int position);
  void removeNode(int position) { removedNodes.push_back(position); }
  void setInput(int node, int input, llvm::StringRef value);
  bool isEmpty() const { return !changed; }

  /// Applies removals and new nodes. Any GraphIndex of the graph is stale afterwards.
  void apply();

private:
  onnx::NodeProto &addNode(llvm::StringRef op, llvm::ArrayRef<std::string> inputs);
  std::string addIntegers(llvm::StringRef name, llvm::ArrayRef<int64_t> values, llvm::ArrayRef<int64_t> shape);
  onnx::GraphProto &graph;
  int64_t madeNodes = 0;
  struct NewNode {
    int before = 0; ///< position of an old node
    onnx::NodeProto node;
  };
  std::vector<NewNode> newNodes;
  int insertPosition = 0;
  std::map<int, std::vector<std::unique_ptr<onnx::NodeProto>>> nodesAfter; ///< by position
  std::vector<int> removedNodes;
  llvm::StringSet<> removedInitializers;
  bool changed = false;
};

} // namespace fsdpc
