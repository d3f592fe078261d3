#include "passes/graph/match_rows.h"

#include "ir/ops/attributes.h"

namespace fsdpc {

namespace {

constexpr double meanTolerance = 1e-5;
constexpr double largestEpsilon = 0.1;

/// Compares each dim of `shape`, aligned at the right end of `type`, with `expected`.
bool hasDims(llvm::ArrayRef<int64_t> shape, const Type &type, llvm::function_ref<int64_t(int64_t)> expected) {
  int64_t missing = type.rank() - static_cast<int64_t>(shape.size());
  for (int64_t i = 0; i < type.rank(); ++i)
    if ((i < missing ? 1 : shape[i - missing]) != expected(i))
      return false;
  return missing >= 0;
}

} // namespace

std::optional<Rows> meanOf(Value *value) {
  Scaled scaled = takeScaleOff(belowReshapes(value));
  const Node *sum = definedBy(belowReshapes(scaled.base), Op::reduceSum);
  if (!sum)
    return std::nullopt;
  const Type &type = sum->operand(0)->type();
  const Shape &axes = sum->get<ReduceAttributes>().axes;
  int64_t first = type.rank() - static_cast<int64_t>(axes.size());
  int64_t count = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != first + static_cast<int64_t>(i))
      return std::nullopt;
    count *= type.dim(axes[i]);
  }
  if (count < 2 || !isNear(scaled.factor, 1.0 / static_cast<double>(count), meanTolerance))
    return std::nullopt;
  return Rows{sum->operand(0), first};
}

Value *perRow(Value *value, const Rows &rows) {
  Value *source = belowBroadcasts(value);
  const Type &type = rows.x->type();
  bool fits = hasDims(source->type().shape(), type, [&](int64_t i) { return i < rows.axis ? type.dim(i) : 1; });
  return fits && source != value ? source : nullptr;
}

Value *sameForEveryRow(Value *value, const Rows &rows, Builder &builder) {
  if (std::optional<double> number = splatOf(value))
    return builder.constant(value->type().withShape(rowShape(rows)), *number);
  Value *source = belowBroadcasts(value);
  const Type &type = rows.x->type();
  bool fits = hasDims(source->type().shape(), type, [&](int64_t i) { return i < rows.axis ? 1 : type.dim(i); });
  return fits ? builder.reshape(source, rowShape(rows)) : nullptr;
}

Shape rowShape(const Rows &rows) { return Shape(rows.x->type().shape().drop_front(rows.axis)); }

Value *underRoot(Value *value) {
  const Node *node = belowReshapes(value)->definer();
  if (!node)
    return nullptr;
  bool isRoot = node->op() == Op::sqrt || (node->op() == Op::pow && splatOf(node->operand(1)) == 0.5);
  return isRoot ? node->operand(0) : nullptr;
}

Value *underInverseRoot(Value *value) {
  const Node *node = belowReshapes(value)->definer();
  if (!node)
    return nullptr;
  if (node->op() == Op::rsqrt || (node->op() == Op::pow && splatOf(node->operand(1)) == -0.5))
    return node->operand(0);
  return node->op() == Op::div && splatOf(node->operand(0)) == 1.0 ? underRoot(node->operand(1)) : nullptr;
}

std::optional<double> epsilonBeside(Value *value, llvm::function_ref<bool(Value *)> isTheOther) {
  Value *below = value ? belowReshapes(value) : nullptr;
  const Node *sum = below ? definedBy(below, Op::add) : nullptr;
  for (unsigned i = 0; sum && i < 2; ++i) {
    std::optional<double> epsilon = splatOf(sum->operand(1 - i));
    if (epsilon && *epsilon >= 0 && *epsilon <= largestEpsilon && isTheOther(sum->operand(i)))
      return epsilon;
  }
  return std::nullopt;
}

} // namespace fsdpc
