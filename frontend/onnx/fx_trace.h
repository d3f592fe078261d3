// The traced graph of torch.export, as far as the file's nodes still tell of it.
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

/// `pkg.torch.onnx.fx_node` (dynamo exporter) is on every node the statement that it was made from:
///   %linear : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args = (%x, %p_fc_weight), ...)
/// Names are without the %.
struct FxStatement {
  std::string name;                   ///< "linear"
  std::string operation;              ///< "linear", of torch.ops.aten.linear.default
  std::vector<std::string> arguments; ///< "x", "p_fc_weight": in order, kwargs too
};

/// Empty names where the node tells nothing.
FxStatement fxStatement(const onnx::NodeProto &node);

/// The operation that the tracer named a value after: expand_1 and expand are of expand; "" of val_3, which the
/// exporter made.
llvm::StringRef fxOperation(llvm::StringRef valueName);

/// What the statements of all nodes mention and define together.
class FxTrace {
public:
  explicit FxTrace(const onnx::GraphProto &graph);
  bool isKnown() const { return !defined.empty(); }
  /// Is the value an argument of a statement of which nodes are left?
  bool mentions(llvm::StringRef name) const { return mentioned.contains(name); }
  /// Arguments of statements that are left, whose own statements left no node: folded, merged or mere views.
  std::vector<std::string> undefinedArguments() const;

private:
  llvm::StringSet<> mentioned, defined;
};

} // namespace fsdpc
