#include "ir/ops/attributes.h"
#include "passes/graph/recognizers.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

namespace {

constexpr double meanTolerance = 1e-5;
constexpr double largestEpsilon = 0.1;

/// What is normalised: x over its axes [axis, rank).
struct Rows {
  Value *x = nullptr;
  int64_t axis = 0;
  friend bool operator==(const Rows &, const Rows &) = default;
};

/// `value` holds one mean per row: of which rows?
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

/// Is dim i of `shape`, counted from the right end of `type`'s, what `expected` says?
bool hasDims(llvm::ArrayRef<int64_t> shape, const Type &type, llvm::function_ref<int64_t(int64_t)> expected) {
  int64_t missing = type.rank() - static_cast<int64_t>(shape.size());
  for (int64_t i = 0; i < type.rank(); ++i)
    if ((i < missing ? 1 : shape[i - missing]) != expected(i))
      return false;
  return missing >= 0;
}

/// The value with one element per row that `value` repeats over its rows; null if it is none.
Value *perRow(Value *value, const Rows &rows) {
  Value *source = belowBroadcasts(value);
  const Type &type = rows.x->type();
  bool fits = hasDims(source->type().shape(), type, [&](int64_t i) { return i < rows.axis ? type.dim(i) : 1; });
  return fits && source != value ? source : nullptr;
}

/// x - mean(x): of which rows?
std::optional<Rows> deviationOf(Value *value) {
  const Node *difference = definedBy(value, Op::sub);
  if (!difference)
    return std::nullopt;
  std::optional<Rows> rows = meanOf(belowBroadcasts(difference->operand(1)));
  if (!rows || rows->x != difference->operand(0) || !perRow(difference->operand(1), *rows))
    return std::nullopt;
  return rows;
}

/// mean((x - mean(x))^2) of these rows?
bool isVarianceOf(Value *value, const Rows &rows) {
  std::optional<Rows> squares = meanOf(value);
  if (!squares || squares->axis != rows.axis)
    return false;
  const Node *square = squares->x->definer();
  if (!square)
    return false;
  if (square->op() == Op::pow)
    return splatOf(square->operand(1)) == 2.0 && deviationOf(square->operand(0)) == rows;
  return square->op() == Op::mul && deviationOf(square->operand(0)) == rows && deviationOf(square->operand(1)) == rows;
}

/// y if the value is sqrt(y).
Value *underRoot(Value *value) {
  const Node *node = belowReshapes(value)->definer();
  if (!node)
    return nullptr;
  bool isRoot = node->op() == Op::sqrt || (node->op() == Op::pow && splatOf(node->operand(1)) == 0.5);
  return isRoot ? node->operand(0) : nullptr;
}

/// y if the value is 1 / sqrt(y).
Value *underInverseRoot(Value *value) {
  const Node *node = belowReshapes(value)->definer();
  if (!node)
    return nullptr;
  if (node->op() == Op::rsqrt || (node->op() == Op::pow && splatOf(node->operand(1)) == -0.5))
    return node->operand(0);
  return node->op() == Op::div && splatOf(node->operand(0)) == 1.0 ? underRoot(node->operand(1)) : nullptr;
}

/// Epsilon if the value is variance + epsilon of these rows.
std::optional<double> epsilonOf(Value *value, const Rows &rows) {
  Value *below = value ? belowReshapes(value) : nullptr;
  const Node *sum = below ? definedBy(below, Op::add) : nullptr;
  for (unsigned i = 0; sum && i < 2; ++i) {
    std::optional<double> epsilon = splatOf(sum->operand(1 - i));
    if (epsilon && *epsilon >= 0 && *epsilon <= largestEpsilon && isVarianceOf(sum->operand(i), rows))
      return epsilon;
  }
  return std::nullopt;
}

Shape rowShape(const Rows &rows) { return Shape(rows.x->type().shape().drop_front(rows.axis)); }

Value *makeLayerNorm(const Rows &rows, double epsilon, Value *gamma, Value *beta, Builder &builder) {
  Type type = rows.x->type().withShape(rowShape(rows));
  gamma = gamma ? gamma : builder.constant(type, 1);
  beta = beta ? beta : builder.constant(type, 0);
  return builder.create(Op::layerNorm, {rows.x, gamma, beta}, NormAttributes{rows.axis, epsilon})->result();
}

// ---- (x - mean) / sqrt(variance + epsilon)
// ----------------------------------------------------------------------------------

Value *normalizeRows(Value *deviation, Value *divisor, bool isInverse, Builder &builder) {
  std::optional<Rows> rows = deviationOf(deviation);
  Value *root = rows ? perRow(divisor, *rows) : nullptr;
  if (!root)
    return nullptr;
  std::optional<double> epsilon = epsilonOf(isInverse ? underInverseRoot(root) : underRoot(root), *rows);
  return epsilon ? makeLayerNorm(*rows, *epsilon, nullptr, nullptr, builder) : nullptr;
}

// ---- gamma and beta
// ---------------------------------------------------------------------------------------------------------

/// The value with the shape of one row that `value` repeats for every row, built; null if it is none.
Value *sameForEveryRow(Value *value, const Rows &rows, Builder &builder) {
  if (std::optional<double> number = splatOf(value))
    return builder.constant(value->type().withShape(rowShape(rows)), *number);
  Value *source = belowBroadcasts(value);
  const Type &type = rows.x->type();
  bool fits = hasDims(source->type().shape(), type, [&](int64_t i) { return i < rows.axis ? 1 : type.dim(i); });
  return fits ? builder.reshape(source, rowShape(rows)) : nullptr;
}

/// layer_norm * gamma and layer_norm + beta, where it has none yet.
Value *absorbAffine(const Node &node, Builder &builder) {
  bool isProduct = node.op() == Op::mul;
  for (unsigned i = 0; i < 2; ++i) {
    const Node *norm = definedBy(node.operand(i), Op::layerNorm);
    if (!norm || node.operand(i)->resultIndex() != 0 || !node.operand(i)->hasOneUse() ||
        splatOf(norm->operand(2)) != 0.0 || (isProduct && splatOf(norm->operand(1)) != 1.0))
      continue;
    const auto &attributes = norm->get<NormAttributes>();
    Rows rows{norm->operand(0), attributes.axis};
    Value *other = sameForEveryRow(node.operand(1 - i), rows, builder);
    if (other)
      return makeLayerNorm(rows, attributes.epsilon, isProduct ? other : norm->operand(1), isProduct ? nullptr : other,
                           builder);
  }
  return nullptr;
}

// ---- x * r + (beta - mean * r)
// ----------------------------------------------------------------------------------------------

/// The operand of a product that is not `factor`; null if the value is no such product.
Value *otherFactor(Value *value, const Value *factor) {
  const Node *product = definedBy(value, Op::mul);
  if (!product || (product->operand(0) != factor && product->operand(1) != factor))
    return nullptr;
  return product->operand(product->operand(0) == factor ? 1 : 0);
}

/// `scale` = gamma / sqrt(variance + epsilon): the layer_norm of these rows with that gamma.
Value *normWithScale(Value *scale, const Rows &rows, Value *beta, Builder &builder) {
  const Node *product = definedBy(scale, Op::mul);
  for (unsigned i = 0; product && i < 2; ++i) {
    Value *root = perRow(product->operand(i), rows);
    std::optional<double> epsilon = root ? epsilonOf(underInverseRoot(root), rows) : std::nullopt;
    Value *gamma = epsilon ? sameForEveryRow(product->operand(1 - i), rows, builder) : nullptr;
    Value *offset = gamma ? sameForEveryRow(beta, rows, builder) : nullptr;
    if (offset)
      return makeLayerNorm(rows, *epsilon, gamma, offset, builder);
  }
  return nullptr;
}

Value *recognizeScaledForm(const Node &node, Builder &builder) {
  for (unsigned i = 0; i < 2; ++i) {
    const Node *product = definedBy(node.operand(i), Op::mul);
    const Node *difference = definedBy(node.operand(1 - i), Op::sub);
    for (unsigned k = 0; product && difference && k < 2; ++k) {
      Value *x = product->operand(k), *scale = product->operand(1 - k);
      Value *mean = otherFactor(difference->operand(1), scale);
      std::optional<Rows> rows = mean ? meanOf(belowBroadcasts(mean)) : std::nullopt;
      if (rows && rows->x == x && perRow(mean, *rows))
        if (Value *norm = normWithScale(scale, *rows, difference->operand(0), builder))
          return norm;
    }
  }
  return nullptr;
}

} // namespace

Value *recognizeLayerNorm(Node &node, Builder &builder) {
  switch (node.op()) {
  case Op::div: return normalizeRows(node.operand(0), node.operand(1), /*isInverse=*/false, builder);
  case Op::mul:
    for (unsigned i = 0; i < 2; ++i)
      if (Value *norm = normalizeRows(node.operand(i), node.operand(1 - i), /*isInverse=*/true, builder))
        return norm;
    return absorbAffine(node, builder);
  case Op::add:
    if (Value *norm = absorbAffine(node, builder))
      return norm;
    return recognizeScaledForm(node, builder);
  default: return nullptr;
  }
}

} // namespace fsdpc
