// The statements that torch.export traced, as far as the nodes of the file still quote them.
//
// The dynamo exporter writes into every node the statement that it implements (`pkg.torch.onnx.fx_node`):
//   %linear_4 : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args = (%gelu, %p_up_weight, ...
// Placeholders (%p_up_weight) are the names that the export signature gives parameters and buffers. Optimizations of
// the graph change nodes and initializers, but not the quotes: they show which parameter a node read before equal ones
// were merged, and which value before equal nodes were. Parameters that are tied in the module have one placeholder.
#pragma once

#include "frontend/onnx/metadata.h"

namespace fsdpc {

struct TracedStatement {
  llvm::StringRef name;                   ///< "linear_4"
  llvm::StringRef target;                 ///< "torch.ops.aten.linear.default"
  int users = -1;                         ///< statements that read it; -1: not specified
  std::vector<llvm::StringRef> arguments; ///< names of values, in order
  std::vector<std::string> parameters;    ///< parameters and buffers among them, under their own names, in order
  /// torch.export traces code under torch.no_grad() or torch.autocast() as a separate graph, and the exporter inlines
  /// that graph again. Such a statement comes from generated source. Which of the two contexts it was is not recorded.
  bool isTracedSeparately = false;
};

/// Valid as long as the graph's nodes and the signature.
class TracedGraph {
public:
  TracedGraph(const onnx::GraphProto &graph, const ExportSignature &signature);

  bool known() const { return !statements.empty(); }
  /// Position in `statements` of the statement that a node implements a part of, -1 for none.
  int statementOf(int node) const { return ofNode[node]; }
  /// -1 if no node of the file implements a statement of the name.
  int find(llvm::StringRef name) const;
  /// True if a statement reads the parameter.
  bool isMentioned(llvm::StringRef parameter) const { return mentioned.contains(parameter); }
  /// True for an argument that is neither a placeholder nor a statement of the file: its nodes were merged, folded or
  /// dropped.
  bool isLost(llvm::StringRef argument) const;

  std::vector<TracedStatement> statements; ///< in the order of their first nodes

private:
  const ExportSignature &signature;
  llvm::StringMap<int> byName;
  llvm::StringSet<> mentioned;
  std::vector<int> ofNode;
};

/// "layer_norm_1" -> "layer_norm": the operation that torch.export names values after.
llvm::StringRef withoutNumber(llvm::StringRef tracedName);
/// The operation that the tracer named a value after: "expand" of expand_1; "" for val_3 and other values that it did
/// not name.
llvm::StringRef tracedOperation(llvm::StringRef valueName);
/// "torch.ops.aten.linear.default" -> "linear".
llvm::StringRef operationOfTarget(llvm::StringRef target);
/// True if the operation's result has the elements of its operand, in their order.
bool keepsElements(llvm::StringRef operation);

} // namespace fsdpc
