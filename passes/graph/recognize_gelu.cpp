#include "ir/ops/attributes.h"
#include "passes/graph/recognizers.h"

#include <array>
#include <cmath>

namespace fsdpc {

namespace {

constexpr double inverseRootOfTwo = 0.70710678118654752; // erf(x / sqrt 2)
constexpr double rootOfTwoOverPi = 0.79788456080286536;  // tanh(sqrt(2 / pi) (x + 0.044715 x^3))
constexpr double cubicWeight = 0.044715;

constexpr int largestDegree = 3;
// x, x*x, x*x*x, their sums and scalings: the terms of one GELU. Bounds the recursion.
constexpr int deepestPolynomial = 8;

// x may be a scaled value itself. The gate determines x.
constexpr int maxScalings = 2;

/// Coefficients of 1, x, x^2, x^3.
using Polynomial = std::array<double, largestDegree + 1>;

std::optional<Polynomial> product(const Polynomial &a, const Polynomial &b) {
  Polynomial result{};
  for (int i = 0; i <= largestDegree; ++i)
    for (int j = 0; j <= largestDegree; ++j) {
      if (a[i] == 0 || b[j] == 0)
        continue;
      if (i + j > largestDegree)
        return std::nullopt;
      result[i + j] += a[i] * b[j];
    }
  return result;
}

std::optional<Polynomial> power(const Polynomial &base, double exponent) {
  if (exponent != 1 && exponent != 2 && exponent != 3)
    return std::nullopt;
  std::optional<Polynomial> result = base;
  for (int i = 1; i < exponent && result; ++i)
    result = product(*result, base);
  return result;
}

Polynomial sum(const Polynomial &a, const Polynomial &b, double factor) {
  Polynomial result{};
  for (int i = 0; i <= largestDegree; ++i)
    result[i] = a[i] + factor * b[i];
  return result;
}

/// The value as a polynomial in x; nullopt if it is not one of degree 3 or less.
std::optional<Polynomial> polynomialIn(Value *value, Value *x, int depth = deepestPolynomial) {
  if (value == x)
    return Polynomial{0, 1, 0, 0};
  if (std::optional<double> number = splatOf(value))
    return Polynomial{*number, 0, 0, 0};
  const Node *node = value->definer();
  if (!node || depth == 0 || node->operandCount() > 2 || node->operandCount() == 0)
    return std::nullopt;
  std::optional<Polynomial> left = polynomialIn(node->operand(0), x, depth - 1);
  if (!left)
    return std::nullopt;
  if (node->op() == Op::neg)
    return sum({}, *left, -1);
  std::optional<Polynomial> right =
      node->operandCount() == 2 ? polynomialIn(node->operand(1), x, depth - 1) : std::nullopt;
  if (!right)
    return std::nullopt;
  std::optional<double> number = splatOf(node->operand(1));
  switch (node->op()) {
  case Op::add: return sum(*left, *right, 1);
  case Op::sub: return sum(*left, *right, -1);
  case Op::mul: return product(*left, *right);
  case Op::div: return number && *number != 0 ? product(*left, Polynomial{1 / *number}) : std::nullopt;
  case Op::pow: return number ? power(*left, *number) : std::nullopt;
  default: return std::nullopt;
  }
}

/// a * (1 + f(u)), where f is erf or tanh.
struct Gate {
  Node *function = nullptr;
  double factor = 0;
};

Gate gateOf(Value *value) {
  const Node *sum = definedBy(value, Op::add);
  if (!sum)
    return {};
  for (unsigned i = 0; i < 2; ++i) {
    std::optional<double> number = splatOf(sum->operand(1 - i));
    Scaled scaled = takeScaleOff(sum->operand(i));
    Node *function = scaled.base->definer();
    if (number && function && (function->op() == Op::erf || function->op() == Op::tanh) &&
        isNear(scaled.factor, *number))
      return {function, *number};
  }
  return {};
}

/// The k for which the gate is that of gelu(k x); nullopt if it is another function of x.
std::optional<double> gateScale(const Gate &gate, Value *x) {
  std::optional<Polynomial> u = polynomialIn(gate.function->operand(0), x);
  if (!u || (*u)[0] != 0 || (*u)[2] != 0 || (*u)[1] == 0)
    return std::nullopt;
  bool isErf = gate.function->op() == Op::erf;
  double scale = (*u)[1] / (isErf ? inverseRootOfTwo : rootOfTwoOverPi);
  double cubic = isErf ? 0 : rootOfTwoOverPi * cubicWeight * scale * scale * scale;
  return isNear((*u)[3], cubic) ? std::optional<double>(scale) : std::nullopt;
}

/// gelu(scale * x), if that is factor * x * gate.
Value *geluOf(Value *x, double factor, const Gate &gate, Builder &builder) {
  std::optional<double> scale = gateScale(gate, x);
  if (!scale || !isNear(factor * gate.factor, 0.5 * *scale))
    return nullptr;
  Value *argument = isNear(*scale, 1) ? x : builder.mul(x, builder.constantLike(x, *scale));
  return builder.unary(gate.function->op() == Op::erf ? Op::gelu : Op::geluTanh, argument);
}

} // namespace

Value *recognizeGelu(Node &node, Builder &builder) {
  if (node.op() != Op::mul && node.op() != Op::div)
    return nullptr;
  Scaled whole = takeScaleOff(node.result());
  const Node *product = definedBy(whole.base, Op::mul);
  if (!product)
    return nullptr;
  for (unsigned i = 0; i < 2; ++i) {
    Scaled gateSide = takeScaleOff(product->operand(i));
    Gate gate = gateOf(gateSide.base);
    if (!gate.function)
      continue;
    for (int steps = 0; steps <= maxScalings; ++steps) {
      Scaled x = takeScaleOff(product->operand(1 - i), steps);
      if (Value *gelu = geluOf(x.base, whole.factor * gateSide.factor * x.factor, gate, builder))
        return gelu;
    }
  }
  return nullptr;
}

} // namespace fsdpc
