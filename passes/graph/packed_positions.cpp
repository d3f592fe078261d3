#include "passes/graph/packed_positions.h"

#include "ir/ops/attributes.h"
#include "passes/graph/match.h"

namespace fsdpc {

namespace {

// One for a window, one for its bound.
constexpr int maxShifts = 4;

std::optional<double> numberOf(const Value *value) {
  const Dense *dense = constantOf(belowBroadcasts(value));
  return dense && (dense->isSplat() || dense->storedElements() == 1) ? std::optional(dense->at(0)) : std::nullopt;
}

/// Whether `value` is one more element, then `positions`, on the last axis.
bool hasOneBefore(Value *value, Value *positions) {
  const Node *concat = definedBy(value, Op::concat);
  if (!concat || concat->operandCount() != 2 || concat->get<AxisAttributes>().axis != value->type().rank() - 1)
    return false;
  return concat->operand(0)->type().dim(-1) == 1 && belowReshapes(concat->operand(1)) == positions &&
         concat->operand(1)->type().dim(-1) == value->type().dim(-1) - 1;
}

/// Whether `value` is elements [start, start + count) on the last axis of such a value.
bool isPartWithOneBefore(Value *value, int64_t start, Value *positions) {
  const Node *slice = definedBy(value, Op::slice);
  if (!slice || slice->get<SliceAttributes>().starts.back() != start ||
      slice->get<SliceAttributes>().steps.back() != 1 || value->type().dim(-1) != slice->operand(0)->type().dim(-1) - 1)
    return false;
  return hasOneBefore(slice->operand(0), positions);
}

/// Position minus the one before.
bool areStepsOf(const Node &sub, Value *positions) {
  const bool isCurrent =
      belowReshapes(sub.operand(0)) == positions || isPartWithOneBefore(sub.operand(0), 1, positions);
  return isCurrent && isPartWithOneBefore(sub.operand(1), 0, positions);
}

} // namespace

ShiftedPositions takeShiftOff(Value *positions) {
  ShiftedPositions taken{positions};
  for (int i = 0; i < maxShifts; ++i) {
    const Node *node = taken.base->definer();
    if (!node || (node->op() != Op::add && node->op() != Op::sub))
      break;
    std::optional<double> right = numberOf(node->operand(1));
    std::optional<double> left = node->op() == Op::add ? numberOf(node->operand(0)) : std::nullopt;
    if (!right && !left)
      break;
    taken.shift += right ? (node->op() == Op::add ? *right : -*right) : *left;
    taken.base = node->operand(right ? 0 : 1);
  }
  return taken;
}

bool beginWherePositionsDo(Value *documents, Value *positions) {
  positions = belowReshapes(positions);
  Value *sum = belowReshapes(documents);
  const Node *count = definedBy(sum, Op::cumulativeSum);
  if (!count || count->get<CumulativeSumAttributes>().axis != sum->type().rank() - 1 ||
      count->get<CumulativeSumAttributes>().exclusive || count->get<CumulativeSumAttributes>().reverse)
    return false;
  Value *begins = count->operand(0);
  if (const Node *cast = definedBy(begins, Op::cast))
    begins = cast->operand(0);
  const Node *isOther = definedBy(begins, Op::logicalNot);
  const Node *isNext = isOther ? definedBy(isOther->operand(0), Op::equal) : nullptr;
  if (!isNext || isOther->operand(0)->type().rank() != sum->type().rank())
    return false;
  const bool hasNumberLast = numberOf(isNext->operand(1)) == 1.0;
  const Node *steps = definedBy(isNext->operand(hasNumberLast ? 0 : 1), Op::sub);
  return steps && (hasNumberLast || numberOf(isNext->operand(0)) == 1.0) && areStepsOf(*steps, positions);
}

} // namespace fsdpc
