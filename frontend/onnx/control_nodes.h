// The semantics of If, Loop and Scan, one body after the other.
#pragma once

#include "frontend/onnx/flat_graph.h"
#include <memory>

namespace fsdpc {

/// One If, Loop or Scan that is being unrolled: the next body to copy, its inputs, and the use of its outputs.
class ControlNode {
public:
  ControlNode(FlatGraph &flat, const onnx::NodeProto &node, Names inputs)
      : node(node), flat(flat), inputs(std::move(inputs)) {}
  virtual ~ControlNode() = default;
  /// The next body; null at the end. `arguments`: names of its inputs, in order.
  virtual const onnx::GraphProto *next(Names &arguments) = 0;
  virtual void take(const Names &outputs) = 0;
  /// Names of the node's outputs.
  virtual Names results() = 0;
  virtual std::string suffix() const = 0; ///< of names in the body that runs
  /// The number of iterations, from the first one, that are certain to run; 0 for a body that an iteration of an outer
  /// loop may skip.
  virtual int64_t surely() const { return 0; }
  const onnx::NodeProto &node;

protected:
  const std::string &input(size_t i) const {
    static const std::string none;
    return i < inputs.size() ? inputs[i] : none;
  }

  /// Stacks all tensors of one scan output along a new axis.
  std::string stacked(const Names &slices, int64_t axis, bool isReversed);

  FlatGraph &flat;
  Names inputs;
};

/// Throws a Refusal if the node cannot be unrolled. `inputs`: the names of the node's inputs in the flat graph.
std::unique_ptr<ControlNode> makeControlNode(FlatGraph &flat, const onnx::NodeProto &node, Names inputs);

} // namespace fsdpc
