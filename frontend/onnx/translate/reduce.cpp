// Reductions over axes.
#include "frontend/onnx/translate/root.h"
#include "frontend/onnx/translate/table.h"

namespace fsdpc {

namespace {

/// The axes to reduce; no axes means all, unless noop_with_empty_axes.
Shape reducedAxes(NodeTranslation &t) {
  int64_t rank = t.input(0)->type().rank();
  Shape axes = t.axesFrom(1, "axes", rank);
  bool keepsAll = axes.empty() && t.integer("noop_with_empty_axes", 0) != 0;
  return axes.empty() && !keepsAll ? allAxes(rank) : axes;
}

bool keepsDims(NodeTranslation &t) { return t.integer("keepdims", 1) != 0; }

/// Converts bools to integers for reductions that accept only numbers.
Value *asNumber(NodeTranslation &t, Value *x) {
  return x->type().dtype() == DType::boolean ? t.cast(x, DType::i32) : x;
}

template <Op op>
void plain(NodeTranslation &t) {
  Value *x = t.input(0);
  Value *reduced = t.reduce(op, asNumber(t, x), reducedAxes(t), keepsDims(t));
  t.setOutput(0, t.cast(reduced, x->type().dtype()));
}

Value *sumOf(NodeTranslation &t, Value *x) { return t.reduce(Op::reduceSum, x, reducedAxes(t), keepsDims(t)); }
Value *square(NodeTranslation &t, Value *x) { return t.binary(Op::mul, x, x); }

void mean(NodeTranslation &t) { t.setOutput(0, t.mean(t.input(0), reducedAxes(t), keepsDims(t))); }
void sumOfAbsolutes(NodeTranslation &t) { t.setOutput(0, sumOf(t, t.unary(Op::abs, t.input(0)))); }
void sumOfSquares(NodeTranslation &t) { t.setOutput(0, sumOf(t, square(t, t.input(0)))); }
void length(NodeTranslation &t) { t.setOutput(0, rootOfSum(t, sumOf(t, square(t, t.input(0))), 2)); }
void logOfSum(NodeTranslation &t) { t.setOutput(0, t.unary(Op::log, sumOf(t, t.input(0)))); }

/// max + log(sum(e^(x - max))), which does not overflow.
void logSumExp(NodeTranslation &t) {
  Value *x = t.input(0);
  Shape axes = reducedAxes(t);
  Value *largest = t.reduce(Op::reduceMax, x, axes, true);
  Value *powers = t.unary(Op::exp, t.binary(Op::sub, x, largest));
  Value *result = t.binary(Op::add, largest, t.unary(Op::log, t.reduce(Op::reduceSum, powers, axes, true)));
  Shape shape;
  for (int64_t i = 0; i < x->type().rank(); ++i)
    if (!llvm::is_contained(axes, i))
      shape.push_back(x->type().dim(i));
  t.setOutput(0, keepsDims(t) ? result : t.reshape(result, shape));
}

constexpr TranslationRow rows[] = {
    {"ReduceL1", sumOfAbsolutes},        {"ReduceL2", length},
    {"ReduceLogSum", logOfSum},          {"ReduceLogSumExp", logSumExp},
    {"ReduceMax", plain<Op::reduceMax>}, {"ReduceMean", mean},
    {"ReduceMin", plain<Op::reduceMin>}, {"ReduceProd", plain<Op::reduceProd>},
    {"ReduceSum", plain<Op::reduceSum>}, {"ReduceSumSquare", sumOfSquares},
};

} // namespace

Value *rootOfSum(NodeTranslation &t, Value *sum, int64_t p) {
  if (p == 1)
    return sum;
  Value *isPositive = t.binary(Op::less, t.constantLike(sum, 0), sum);
  Value *safe = t.select(isPositive, sum, t.constantLike(sum, 1));
  Value *root = p == 2 ? t.unary(Op::sqrt, safe) : t.binary(Op::pow, safe, 1.0 / static_cast<double>(p));
  return t.select(isPositive, root, sum);
}

TranslationRows reduceTranslations() { return rows; }

} // namespace fsdpc
