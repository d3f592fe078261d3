#include "ir/ops/attributes.h"
#include "passes/graph/match_rows.h"
#include "passes/graph/recognizers.h"

namespace fsdpc {

namespace {

/// Matches x - mean(x) and returns its rows.
std::optional<Rows> deviationOf(Value *value) {
  const Node *difference = definedBy(value, Op::sub);
  if (!difference)
    return std::nullopt;
  std::optional<Rows> rows = meanOf(belowBroadcasts(difference->operand(1)));
  if (!rows || rows->x != difference->operand(0) || !perRow(difference->operand(1), *rows))
    return std::nullopt;
  return rows;
}

/// True for mean((x - mean(x))^2) of these rows.
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

/// Epsilon if the value is variance + epsilon of these rows.
std::optional<double> epsilonOf(Value *value, const Rows &rows) {
  return epsilonBeside(value, [&](Value *other) { return isVarianceOf(other, rows); });
}

Value *makeLayerNorm(const Rows &rows, double epsilon, Value *gamma, Value *beta, Builder &builder) {
  Type type = rows.x->type().withShape(rowShape(rows));
  gamma = gamma ? gamma : builder.constant(type, 1);
  beta = beta ? beta : builder.constant(type, 0);
  return builder.create(Op::layerNorm, {rows.x, gamma, beta}, NormAttributes{rows.axis, epsilon})->result();
}

// ---- (x - mean) / sqrt(variance + epsilon)

Value *normalizeRows(Value *deviation, Value *divisor, bool isInverse, Builder &builder) {
  std::optional<Rows> rows = deviationOf(deviation);
  Value *root = rows ? perRow(divisor, *rows) : nullptr;
  if (!root)
    return nullptr;
  std::optional<double> epsilon = epsilonOf(isInverse ? underInverseRoot(root) : underRoot(root), *rows);
  return epsilon ? makeLayerNorm(*rows, *epsilon, nullptr, nullptr, builder) : nullptr;
}

// ---- gamma and beta

/// Matches layer_norm * gamma and layer_norm + beta, where the norm has none yet.
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

/// The operand of a product other than `factor`; null if the value is no such product.
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
