#include "passes/graph/same_elements.h"

#include "ir/ops/attributes.h"
#include "passes/graph/match.h"

namespace fsdpc {

namespace {

// Numbers of documents are made in a few ops from an input or a range.
constexpr int maxPairs = 64;

/// The product of the last two dims, of which one is 1 in values of queries or of keys.
int64_t positionsOf(const Type &type) { return type.rank() < 2 ? type.elements() : type.dim(-1) * type.dim(-2); }

/// Shapes that differ at most by which of the last two axes has the positions.
bool areTurned(const Type &a, const Type &b) {
  return a.dtype() == b.dtype() && a.rank() == b.rank() && positionsOf(a) == positionsOf(b) &&
         a.shape().drop_back(std::min<int64_t>(a.rank(), 2)) == b.shape().drop_back(std::min<int64_t>(b.rank(), 2)) &&
         (a.rank() < 2 || std::min(a.dim(-1), a.dim(-2)) <= 1) && (b.rank() < 2 || std::min(b.dim(-1), b.dim(-2)) <= 1);
}

/// A range on one axis.
bool areSameRange(const Node &a, const Node &b) {
  const auto &x = a.get<IotaAttributes>(), &y = b.get<IotaAttributes>();
  return a.result()->type().elements() == x.shape[x.axis] && b.result()->type().elements() == y.shape[y.axis] &&
         x.shape[x.axis] == y.shape[y.axis] && x.dtype == y.dtype && x.start == y.start && x.step == y.step;
}

/// Whether equal operands give equal results. Then their operands are compared.
bool areSameOps(const Node &a, const Node &b) {
  if (a.op() != b.op() || a.resultCount() != 1 || a.operandCount() != b.operandCount())
    return false;
  if (a.op() == Op::iota)
    return areSameRange(a, b);
  if (a.op() == Op::constant)
    return a.result()->type().dtype() == b.result()->type().dtype() &&
           a.result()->type().elements() == b.result()->type().elements() &&
           a.get<ConstantAttributes>().value == b.get<ConstantAttributes>().value;
  if (!areTurned(a.result()->type(), b.result()->type()))
    return false;
  if (a.op() == Op::broadcast)
    return areTurned(a.operand(0)->type(), b.operand(0)->type());
  return isElementwise(a) && a.op() != Op::fused && equalAttributes(a.attributes(), b.attributes());
}

} // namespace

bool holdSameElements(Value *a, Value *b) {
  llvm::SmallVector<std::pair<Value *, Value *>, 8> pairs = {{a, b}};
  for (int i = 0; !pairs.empty(); ++i) {
    auto [x, y] = pairs.pop_back_val();
    x = belowReshapes(x);
    y = belowReshapes(y);
    if (x == y)
      continue;
    const Node *ofX = x->definer(), *ofY = y->definer();
    if (!ofX || !ofY || i >= maxPairs || !areSameOps(*ofX, *ofY))
      return false;
    for (unsigned operand = 0; operand < ofX->operandCount(); ++operand)
      pairs.push_back({ofX->operand(operand), ofY->operand(operand)});
  }
  return true;
}

} // namespace fsdpc
