// Trigonometric and hyperbolic functions and their inverses, by formulas that are accurate near 0 and at the ends.
//
// If a formula holds only on a part of the real line, its argument elsewhere is replaced by a safe value: an unselected
// branch must not turn its zero gradient into NaN.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"

namespace fsdpc {

namespace {

Value *square(NodeTranslation &t, Value *x) { return t.binary(Op::mul, x, x); }
Value *onePlus(NodeTranslation &t, Value *x) { return t.binary(Op::add, x, 1); }
Value *oneMinus(NodeTranslation &t, Value *x) { return t.binary(Op::sub, t.constantLike(x, 1), x); }
Value *isWithinOne(NodeTranslation &t, Value *x) { return t.binary(Op::less, t.unary(Op::abs, x), 1); }

void arcTangent(NodeTranslation &t) { t.setOutput(0, t.unary(Op::atan, t.input(0))); }

/// atan(x / sqrt((1 - x) (1 + x))): the differences are exact near the ends.
void arcSine(NodeTranslation &t) {
  Value *x = t.input(0);
  Value *leg = t.unary(Op::sqrt, t.binary(Op::mul, oneMinus(t, x), onePlus(t, x)));
  t.setOutput(0, t.unary(Op::atan, t.binary(Op::div, x, leg)));
}

/// 2 atan(sqrt((1 - x) / (1 + x)))
void arcCosine(NodeTranslation &t) {
  Value *x = t.input(0);
  Value *half = t.unary(Op::sqrt, t.binary(Op::div, oneMinus(t, x), onePlus(t, x)));
  t.setOutput(0, t.binary(Op::mul, t.unary(Op::atan, half), 2));
}

void tangent(NodeTranslation &t) {
  t.setOutput(0, t.binary(Op::div, t.unary(Op::sin, t.input(0)), t.unary(Op::cos, t.input(0))));
}

/// (e^x + sign * e^-x) / 2
template <Op op>
Value *halfOfPowers(NodeTranslation &t, Value *x) {
  Value *sum = t.binary(op, t.unary(Op::exp, x), t.unary(Op::exp, t.unary(Op::neg, x)));
  return t.binary(Op::mul, sum, 0.5);
}

void hyperbolicCosine(NodeTranslation &t) { t.setOutput(0, halfOfPowers<Op::add>(t, t.input(0))); }

/// Below 1, where the powers of e cancel, 2 h / (1 - h^2) with h = tanh(x / 2).
void hyperbolicSine(NodeTranslation &t) {
  Value *x = t.input(0), *isSmall = isWithinOne(t, x);
  Value *small = t.select(isSmall, x, t.constantLike(x, 0));
  Value *h = t.unary(Op::tanh, t.binary(Op::mul, small, 0.5));
  Value *nearZero = t.binary(Op::div, t.binary(Op::mul, h, 2), oneMinus(t, square(t, h)));
  t.setOutput(0, t.select(isSmall, nearZero, halfOfPowers<Op::sub>(t, x)));
}

/// (log(1 + x) - log(1 - x)) / 2
Value *arcHyperbolicTangentOf(NodeTranslation &t, Value *x) {
  Value *difference = t.binary(Op::sub, t.unary(Op::log1p, x), t.unary(Op::log1p, t.unary(Op::neg, x)));
  return t.binary(Op::mul, difference, 0.5);
}

void arcHyperbolicTangent(NodeTranslation &t) { t.setOutput(0, arcHyperbolicTangentOf(t, t.input(0))); }

/// Below 1 atanh(x / sqrt(1 + x^2)), odd in x; beyond it sign(x) (log |x| + log(1 + sqrt(1 + 1 / x^2))), which does not
/// overflow.
void arcHyperbolicSine(NodeTranslation &t) {
  Value *x = t.input(0), *isSmall = isWithinOne(t, x);
  Value *small = t.select(isSmall, x, t.constantLike(x, 0)), *large = t.select(isSmall, t.constantLike(x, 1), x);
  Value *nearZero =
      arcHyperbolicTangentOf(t, t.binary(Op::div, small, t.unary(Op::sqrt, onePlus(t, square(t, small)))));
  Value *size = t.unary(Op::abs, large), *inverse = t.binary(Op::div, t.constantLike(x, 1), size);
  Value *tail = t.unary(Op::log1p, t.unary(Op::sqrt, onePlus(t, square(t, inverse))));
  Value *far = t.binary(Op::mul, t.unary(Op::sign, large), t.binary(Op::add, t.unary(Op::log, size), tail));
  t.setOutput(0, t.select(isSmall, nearZero, far));
}

/// log(1 + d + sqrt(d) sqrt(d + 2)) with d = x - 1, which is exact near 1.
void arcHyperbolicCosine(NodeTranslation &t) {
  Value *d = t.binary(Op::sub, t.input(0), 1);
  Value *root = t.binary(Op::mul, t.unary(Op::sqrt, d), t.unary(Op::sqrt, t.binary(Op::add, d, 2)));
  t.setOutput(0, t.unary(Op::log1p, t.binary(Op::add, d, root)));
}

constexpr TranslationRow rows[] = {
    {"Acos", arcCosine},          {"Acosh", arcHyperbolicCosine}, {"Asin", arcSine},
    {"Asinh", arcHyperbolicSine}, {"Atan", arcTangent},           {"Atanh", arcHyperbolicTangent},
    {"Cosh", hyperbolicCosine},   {"Sinh", hyperbolicSine},       {"Tan", tangent},
};

} // namespace

TranslationRows trigonometryTranslations() { return rows; }

} // namespace fsdpc
