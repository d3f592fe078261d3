#include "ir/ops/batch_rules.h"

#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

BatchFact onAxis(BatchFact fact, int64_t axis) {
  if (!hasPosition(fact))
    return fact;
  fact.position.axis = axis;
  return axis < 0 ? lostBatch : fact;
}

BatchFact join(BatchFact a, BatchFact b) {
  using Kind = BatchFact::Kind;
  if (a.kind == Kind::none || b.kind == Kind::none)
    return a.kind == Kind::none ? b : a;
  if (a.kind == Kind::lost || b.kind == Kind::lost)
    return lostBatch;
  if (a.position == b.position || (a.position.samples == 1 && b.position.samples == 1))
    return a;
  return lostBatch;
}

BatchFact keepsBatch(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned) {
  return joined(node, operands, [](const Node &, unsigned, int64_t axis) { return axis; });
}

BatchFact losesBatch(const Node &, llvm::ArrayRef<BatchFact>, unsigned) { return lostBatch; }

BatchFact reducedBatch(BatchFact fact, llvm::ArrayRef<int64_t> axes, bool keepDims) {
  if (!hasPosition(fact))
    return fact;
  const int64_t axis = fact.position.axis;
  if (llvm::is_contained(axes, axis))
    return {};
  int64_t before = llvm::count_if(axes, [&](int64_t reduced) { return reduced < axis; });
  return onAxis(fact, keepDims ? axis : axis - before);
}

BatchFact broadcastBatch(BatchFact fact, const Type &from, const Type &to) {
  if (!hasPosition(fact))
    return fact;
  const int64_t axis = fact.position.axis + to.rank() - from.rank();
  if (to.dim(axis) != from.dim(fact.position.axis))
    fact.position.inner = to.dim(axis); // the one sample, repeated
  return onAxis(fact, axis);
}

} // namespace fsdpc
