// What the batch rules of ops (OpInfo::batch) share. Where operands disagree the batch is lost, except where one rank
// has one sample: then every element is of that sample, wherever the position says.
#pragma once

#include "ir/batch_position.h"
#include "ir/node.h"

namespace fsdpc {

inline constexpr BatchFact lostBatch{BatchFact::Kind::lost, {}};

inline bool hasPosition(const BatchFact &fact) { return fact.kind == BatchFact::Kind::found; }

/// The same on another axis; lost for an axis below 0.
BatchFact onAxis(BatchFact fact, int64_t axis);
BatchFact join(BatchFact a, BatchFact b);

/// What all operands agree on when axisOf(node, operand, axis) has said where each one's axis comes out.
template <class AxisOf>
BatchFact joined(const Node &node, llvm::ArrayRef<BatchFact> operands, AxisOf axisOf) {
  BatchFact result;
  for (unsigned i = 0; i < node.operandCount(); ++i)
    result = join(result, hasPosition(operands[i]) ? onAxis(operands[i], axisOf(node, i, operands[i].position.axis))
                                                   : operands[i]);
  return result;
}

/// A whole rule from such a function.
template <auto axisOf>
BatchFact batchByAxis(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned) {
  return joined(node, operands, axisOf);
}

/// Operand 0 decides, others have no say, and is lost if `isMixed(node, axis)`.
template <auto isMixed>
BatchFact batchUnlessMixed(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned) {
  return hasPosition(operands[0]) && isMixed(node, operands[0].position.axis) ? lostBatch : operands[0];
}

/// Every axis stays where it is.
BatchFact keepsBatch(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned result);
/// Samples are mixed, or nobody has written down where they come out.
BatchFact losesBatch(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned result);
/// Of operand 0, whose `axes` are reduced: what is over all samples belongs to none of them.
BatchFact reducedBatch(BatchFact fact, llvm::ArrayRef<int64_t> axes, bool keepDims);
/// Of an operand of type `from`, repeated to `to`.
BatchFact broadcastBatch(BatchFact fact, const Type &from, const Type &to);

} // namespace fsdpc
