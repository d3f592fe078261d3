#include "ir/ops/attributes.h"
#include "passes/graph/match_rows.h"
#include "passes/graph/recognizers.h"

namespace fsdpc {

namespace {

/// Matches mean(x^2) over trailing axes and returns the rows of x.
std::optional<Rows> rowsOfPower(Value *value) {
  std::optional<Rows> squares = meanOf(value);
  const Node *square = squares ? squares->x->definer() : nullptr;
  bool isSquare = square && ((square->op() == Op::pow && splatOf(square->operand(1)) == 2.0) ||
                             (square->op() == Op::mul && square->operand(0) == square->operand(1)));
  if (!isSquare)
    return std::nullopt;
  return Rows{square->operand(0), squares->axis};
}

Value *makeRmsNorm(const Rows &rows, double epsilon, Value *gamma, Builder &builder) {
  gamma = gamma ? gamma : builder.constant(rows.x->type().withShape(rowShape(rows)), 1);
  return builder.create(Op::rmsNorm, {rows.x, gamma}, NormAttributes{rows.axis, epsilon})->result();
}

/// Matches x * divisor or x / divisor, where the divisor is computed from the mean of x * x.
Value *normalizeRows(Value *x, Value *divisor, bool isInverse, Builder &builder) {
  Value *root = belowBroadcasts(divisor);
  std::optional<Rows> rows;
  auto isPower = [&](Value *value) {
    rows = rowsOfPower(value);
    return rows && rows->x == x;
  };
  std::optional<double> epsilon = epsilonBeside(isInverse ? underInverseRoot(root) : underRoot(root), isPower);
  return epsilon && perRow(divisor, *rows) ? makeRmsNorm(*rows, *epsilon, nullptr, builder) : nullptr;
}

/// Matches rms_norm * gamma, where the norm has none yet.
Value *absorbGamma(const Node &node, Builder &builder) {
  for (unsigned i = 0; i < 2; ++i) {
    const Node *norm = definedBy(node.operand(i), Op::rmsNorm);
    if (!norm || node.operand(i)->resultIndex() != 0 || !node.operand(i)->hasOneUse() ||
        splatOf(norm->operand(1)) != 1.0)
      continue;
    const auto &attributes = norm->get<NormAttributes>();
    Rows rows{norm->operand(0), attributes.axis};
    if (Value *gamma = sameForEveryRow(node.operand(1 - i), rows, builder))
      return makeRmsNorm(rows, attributes.epsilon, gamma, builder);
  }
  return nullptr;
}

} // namespace

Value *recognizeRmsNorm(Node &node, Builder &builder) {
  if (node.op() == Op::div)
    return normalizeRows(node.operand(0), node.operand(1), /*isInverse=*/false, builder);
  if (node.op() != Op::mul)
    return nullptr;
  for (unsigned i = 0; i < 2; ++i)
    if (Value *norm = normalizeRows(node.operand(i), node.operand(1 - i), /*isInverse=*/true, builder))
      return norm;
  return absorbGamma(node, builder);
}

} // namespace fsdpc
