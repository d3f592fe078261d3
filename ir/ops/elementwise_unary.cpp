// Elementwise ops of one operand, and the derivatives of gelu and silu.
#include "ir/ops/elementwise.h"

#include <cmath>
#include <numbers>

namespace fsdpc {

namespace {

constexpr double inverseRootTwo = 1 / std::numbers::sqrt2;
constexpr double geluTanhCubic = 0.044715;

double normalDensity(double x) { return std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi * inverseRootTwo; }
double normalDistribution(double x) { return 0.5 * (1 + std::erf(x * inverseRootTwo)); }

/// The tanh term in the tanh form of gelu.
double geluTanhTerm(double x) {
  constexpr double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  return std::tanh(scale * (x + geluTanhCubic * x * x * x));
}

double geluTanhDerivative(double x) {
  constexpr double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  double t = geluTanhTerm(x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * geluTanhCubic * x * x);
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

constexpr llvm::StringRef namesXDy[] = {"x", "dy"};

using enum ElementKind;

} // namespace

constinit const OpInfo negInfo = elementwiseOp<[](const double *a, DType) { return -a[0]; }>(
    "neg", {.text = "-({0})", .wraps = true, .isExact = true}, "-x. (C2) x is a number.", namesX,
    inferSame<negInfo, number>, unaryVjp<[](Builder &b, Value *, Value *, Value *dy) { return b.unary(Op::neg, dy); }>);

constinit const OpInfo absInfo = elementwiseOp<[](const double *a, DType) { return std::fabs(a[0]); }>(
    "abs", {.text = "scalar::abs({0})", .isExact = true}, "|x|; its derivative at 0 is 0. (C2) x is a number.", namesX,
    inferSame<absInfo, number>,
    unaryVjp<[](Builder &b, Value *x, Value *, Value *dy) { return b.mul(dy, b.unary(Op::sign, x)); }>);

constinit const OpInfo signInfo =
    elementwiseOp<[](const double *a, DType) { return a[0] < 0   ? -1.0
                                                      : 0 < a[0] ? 1.0
                                                                 : a[0]; }>(
        "sign", {.text = "scalar::sign({0})"}, "-1, 0 or 1; NaN stays NaN. Derivative 0. (C2) x is a number.", namesX,
        inferSame<signInfo, number>, notDifferentiable);

constinit const OpInfo expInfo = elementwiseOp<[](const double *a, DType) { return std::exp(a[0]); }>(
    "exp", {.text = "scalar::exp({0})", .operations = 16}, "e to the power x. (C2) x is float.", namesX,
    inferSame<expInfo, floating>, unaryVjp<[](Builder &b, Value *, Value *y, Value *dy) { return b.mul(dy, y); }>);

constinit const OpInfo logInfo = elementwiseOp<[](const double *a, DType) { return std::log(a[0]); }>(
    "log", {.text = "scalar::log({0})", .operations = 16}, "Natural logarithm of x. (C2) x is float.", namesX,
    inferSame<logInfo, floating>, unaryVjp<[](Builder &b, Value *x, Value *, Value *dy) { return b.div(dy, x); }>);

constinit const OpInfo log1pInfo = elementwiseOp<[](const double *a, DType) { return std::log1p(a[0]); }>(
    "log1p", {.text = "scalar::log1p({0})", .operations = 16}, "Natural logarithm of 1 + x. (C2) x is float.", namesX,
    inferSame<log1pInfo, floating>,
    unaryVjp<[](Builder &b, Value *x, Value *, Value *dy) { return b.div(dy, b.add(b.constantLike(x, 1), x)); }>);

constinit const OpInfo sqrtInfo = elementwiseOp<[](const double *a, DType) { return std::sqrt(a[0]); }>(
    "sqrt", {.text = "scalar::sqrt({0})", .operations = 4},
    "Square root of x; its derivative at 0 is infinite. (C2) x is float.", namesX, inferSame<sqrtInfo, floating>,
    unaryVjp<[](Builder &b, Value *, Value *y, Value *dy) { return b.div(b.mul(dy, b.constantLike(y, 0.5)), y); }>);

constinit const OpInfo rsqrtInfo = elementwiseOp<[](const double *a, DType) { return 1 / std::sqrt(a[0]); }>(
    "rsqrt", {.text = "scalar::rsqrt({0})", .operations = 4}, "1 / sqrt(x). (C2) x is float.", namesX,
    inferSame<rsqrtInfo, floating>, unaryVjp<[](Builder &b, Value *, Value *y, Value *dy) {
      return b.mul(b.mul(dy, b.constantLike(y, -0.5)), b.mul(y, b.mul(y, y)));
    }>);

constinit const OpInfo tanhInfo = elementwiseOp<[](const double *a, DType) { return std::tanh(a[0]); }>(
    "tanh", {.text = "scalar::tanh({0})", .operations = 16}, "Hyperbolic tangent of x. (C2) x is float.", namesX,
    inferSame<tanhInfo, floating>, unaryVjp<[](Builder &b, Value *, Value *y, Value *dy) {
      return b.mul(dy, b.sub(b.constantLike(y, 1), b.mul(y, y)));
    }>);

constinit const OpInfo erfInfo = elementwiseOp<[](const double *a, DType) { return std::erf(a[0]); }>(
    "erf", {.text = "scalar::erf({0})", .operations = 16},
    "The error function 2/sqrt(pi) * integral of exp(-t^2) from 0 to x. (C2) x is float.", namesX,
    inferSame<erfInfo, floating>, unaryVjp<[](Builder &b, Value *x, Value *, Value *dy) {
      Value *bell = b.unary(Op::exp, b.unary(Op::neg, b.mul(x, x)));
      return b.mul(dy, b.mul(b.constantLike(x, 2 * std::numbers::inv_sqrtpi), bell));
    }>);

constinit const OpInfo sigmoidInfo = elementwiseOp<[](const double *a, DType) { return logistic(a[0]); }>(
    "sigmoid", {.text = "scalar::sigmoid({0})", .operations = 16}, "1 / (1 + exp(-x)). (C2) x is float.", namesX,
    inferSame<sigmoidInfo, floating>, unaryVjp<[](Builder &b, Value *, Value *y, Value *dy) {
      return b.mul(dy, b.mul(y, b.sub(b.constantLike(y, 1), y)));
    }>);

constinit const OpInfo reluInfo = elementwiseOp<[](const double *a, DType) { return a[0] < 0 ? 0 : a[0]; }>(
    "relu", {.text = "scalar::relu({0})", .isExact = true},
    "The larger of x and 0; NaN stays NaN; its derivative at 0 is 0. (C2) x is a number.", namesX,
    inferSame<reluInfo, number>, unaryVjp<[](Builder &b, Value *, Value *y, Value *dy) {
      // Uses y instead of x, so that x need not be kept for backward.
      Value *zero = b.constantLike(y, 0);
      return b.select(b.binary(Op::less, zero, y), dy, zero);
    }>);

constinit const OpInfo sinInfo = elementwiseOp<[](const double *a, DType) { return std::sin(a[0]); }>(
    "sin", {.text = "scalar::sin({0})", .operations = 16}, "Sine of x. (C2) x is float.", namesX,
    inferSame<sinInfo, floating>,
    unaryVjp<[](Builder &b, Value *x, Value *, Value *dy) { return b.mul(dy, b.unary(Op::cos, x)); }>);

constinit const OpInfo cosInfo = elementwiseOp<[](const double *a, DType) {
  return std::cos(a[0]);
}>("cos", {.text = "scalar::cos({0})", .operations = 16}, "Cosine of x. (C2) x is float.", namesX,
   inferSame<cosInfo, floating>,
   unaryVjp<[](Builder &b, Value *x, Value *, Value *dy) { return b.unary(Op::neg, b.mul(dy, b.unary(Op::sin, x))); }>);

constinit const OpInfo atanInfo = elementwiseOp<[](const double *a, DType) { return std::atan(a[0]); }>(
    "atan", {.text = "scalar::atan({0})", .operations = 16},
    "The angle in [-pi/2, pi/2] whose tangent is x. (C2) x is float.", namesX, inferSame<atanInfo, floating>,
    unaryVjp<[](Builder &b, Value *x, Value *, Value *dy) {
      return b.div(dy, b.add(b.constantLike(x, 1), b.mul(x, x)));
    }>);

constinit const OpInfo floorInfo = elementwiseOp<[](const double *a, DType) { return std::floor(a[0]); }>(
    "floor", {.text = "scalar::floor({0})"}, "The largest integer <= x. Derivative 0. (C2) x is float.", namesX,
    inferSame<floorInfo, floating>, notDifferentiable);

constinit const OpInfo ceilInfo = elementwiseOp<[](const double *a, DType) { return std::ceil(a[0]); }>(
    "ceil", {.text = "scalar::ceil({0})"}, "The smallest integer >= x. Derivative 0. (C2) x is float.", namesX,
    inferSame<ceilInfo, floating>, notDifferentiable);

constinit const OpInfo roundInfo = elementwiseOp<[](const double *a, DType) { return std::nearbyint(a[0]); }>(
    "round", {.text = "scalar::round({0})"}, "The nearest integer, halves to even. Derivative 0. (C2) x is float.",
    namesX, inferSame<roundInfo, floating>, notDifferentiable);

constinit const OpInfo geluInfo = elementwiseOp<[](const double *a, DType) { return a[0] * normalDistribution(a[0]); }>(
    "gelu", {.text = "scalar::gelu({0})", .operations = 20},
    "x * Phi(x), Phi the normal distribution: 0.5 x (1 + erf(x / sqrt 2)). (C2) x is float.", namesX,
    inferSame<geluInfo, floating>,
    unaryVjp<[](Builder &b, Value *x, Value *, Value *dy) { return b.binary(Op::geluGrad, x, dy); }>);

constinit const OpInfo geluTanhInfo =
    elementwiseOp<[](const double *a, DType) { return 0.5 * a[0] * (1 + geluTanhTerm(a[0])); }>(
        "gelu_tanh", {.text = "scalar::geluTanh({0})", .operations = 20},
        "0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). (C2) x is float.", namesX, inferSame<geluTanhInfo, floating>,
        unaryVjp<[](Builder &b, Value *x, Value *, Value *dy) { return b.binary(Op::geluTanhGrad, x, dy); }>);

// Only autodiff creates the derivatives, and it never differentiates twice.
constinit const OpInfo geluGradInfo = elementwiseOp<[](const double *a, DType) {
  return a[1] * (normalDistribution(a[0]) + a[0] * normalDensity(a[0]));
}>("gelu_grad", {.text = "scalar::geluGrad({1}, {0})", .operations = 30},
   "dy times the derivative of gelu at x. (C1) x and dy have one type. (C2) It is float.", namesXDy,
   inferSame<geluGradInfo, floating>, notDifferentiable);

constinit const OpInfo geluTanhGradInfo =
    elementwiseOp<[](const double *a, DType) { return a[1] * geluTanhDerivative(a[0]); }>(
        "gelu_tanh_grad", {.text = "scalar::geluTanhGrad({1}, {0})", .operations = 30},
        "dy times the derivative of gelu_tanh at x. (C1) x and dy have one type. (C2) It is float.", namesXDy,
        inferSame<geluTanhGradInfo, floating>, notDifferentiable);

constinit const OpInfo siluInfo = elementwiseOp<[](const double *a, DType) { return a[0] * logistic(a[0]); }>(
    "silu", {.text = "scalar::silu({0})", .operations = 20}, "x * sigmoid(x), also called swish. (C2) x is float.",
    namesX, inferSame<siluInfo, floating>,
    unaryVjp<[](Builder &b, Value *x, Value *, Value *dy) { return b.binary(Op::siluGrad, x, dy); }>);

constinit const OpInfo siluGradInfo = elementwiseOp<[](const double *a, DType) {
  double s = logistic(a[0]);
  return a[1] * (s * (1 + a[0] * (1 - s)));
}>("silu_grad", {.text = "scalar::siluGrad({1}, {0})", .operations = 20},
   "dy times the derivative of silu at x. (C1) x and dy have one type. (C2) It is float.", namesXDy,
   inferSame<siluGradInfo, floating>, notDifferentiable);

constinit const OpInfo logicalNotInfo = elementwiseOp<[](const double *a, DType) { return a[0] == 0 ? 1.0 : 0.0; }>(
    "not", {.text = "!{0}"}, "True where x is false. (C2) x is bool.", namesX, inferSame<logicalNotInfo, boolean>,
    notDifferentiable);

constinit const OpInfo isNanInfo = elementwiseOp<[](const double *a, DType) { return std::isnan(a[0]) ? 1.0 : 0.0; }>(
    "is_nan", {.text = "{0} != {0}"}, "True where x is NaN. (C2) x is float.", namesX,
    inferPredicate<isNanInfo, floating>, notDifferentiable);

} // namespace fsdpc
