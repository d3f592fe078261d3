// Helpers for the batch rules of ops (OpInfo::batch). If operands disagree, the batch is lost. The exception is one
// sample per rank: then every element belongs to that sample, whatever the position.
#pragma once

#include "ir/batch_position.h"
#include "ir/node.h"

namespace fsdpc {

inline constexpr BatchFact lostBatch{BatchFact::Kind::lost, {}};

inline bool hasPosition(const BatchFact &fact) { return fact.kind == BatchFact::Kind::found; }

/// The same fact on another axis. Lost if the axis is negative.
BatchFact onAxis(BatchFact fact, int64_t axis);
BatchFact join(BatchFact a, BatchFact b);

/// Joins the facts of all operands, after axisOf(node, operand, axis) has mapped each operand's axis to the result.
template <class AxisOf>
BatchFact joined(const Node &node, llvm::ArrayRef<BatchFact> operands, AxisOf axisOf) {
  BatchFact result;
  for (unsigned i = 0; i < node.operandCount(); ++i)
    result = join(result, hasPosition(operands[i]) ? onAxis(operands[i], axisOf(node, i, operands[i].position.axis))
                                                   : operands[i]);
  return result;
}

/// A complete rule from such a function.
template <auto axisOf>
BatchFact batchByAxis(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned) {
  return joined(node, operands, axisOf);
}

/// The fact of operand 0, or lost if `isMixed(node, axis)`. Other operands do not count.
template <auto isMixed>
BatchFact batchUnlessMixed(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned) {
  return hasPosition(operands[0]) && isMixed(node, operands[0].position.axis) ? lostBatch : operands[0];
}

/// Every axis keeps its position.
BatchFact keepsBatch(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned result);
/// Samples are mixed, or the op has no rule.
BatchFact losesBatch(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned result);
/// The fact after reducing `axes` of operand 0. A reduction over all samples belongs to no sample.
BatchFact reducedBatch(BatchFact fact, llvm::ArrayRef<int64_t> axes, bool keepDims);
/// The fact after broadcasting an operand of type `from` to `to`.
BatchFact broadcastBatch(BatchFact fact, const Type &from, const Type &to);

} // namespace fsdpc
