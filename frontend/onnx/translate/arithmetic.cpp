// Elementwise arithmetic and functions of one variable.
#include "frontend/onnx/metadata.h"
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"

namespace fsdpc {

namespace {

template <Op op>
void unaryOp(NodeTranslation &t) {
  t.setOutput(0, t.unary(op, t.input(0)));
}
template <Op op>
void binaryOp(NodeTranslation &t) {
  t.setOutput(0, t.binary(op, t.input(0), t.input(1)));
}

/// Combines any number of inputs from left to right.
template <Op op>
void variadicOp(NodeTranslation &t) {
  Value *result = t.input(0);
  for (unsigned i = 1; i < t.inputCount(); ++i)
    result = t.binary(op, result, t.input(i));
  t.setOutput(0, result);
}

void mean(NodeTranslation &t) {
  variadicOp<Op::add>(t);
  if (t.inputCount() > 1)
    t.setOutput(0, t.binary(Op::mul, t.results()[0].tensor, 1.0 / t.inputCount()));
}

void reciprocal(NodeTranslation &t) { t.setOutput(0, t.binary(Op::div, t.constantLike(t.input(0), 1), t.input(0))); }

/// The exponent may have another type than the base. The base determines the result's type.
void power(NodeTranslation &t) {
  t.setOutput(0, t.binary(Op::pow, t.input(0), t.cast(t.input(1), t.input(0)->type().dtype())));
}

/// The remainder of floats has the sign of the dividend, that of integers the sign of the divisor, unless fmod is set.
void modulo(NodeTranslation &t) {
  bool truncates = t.integer("fmod", 0) != 0;
  if (!truncates || isFloat(t.input(0)->type().dtype()))
    return binaryOp<Op::mod>(t);
  // Division of integers truncates, so the remainder has the dividend's sign.
  Value *quotient = t.binary(Op::div, t.input(0), t.input(1));
  t.setOutput(0, t.binary(Op::sub, t.input(0), t.binary(Op::mul, quotient, t.input(1))));
}

/// The upper bound wins where it is below the lower one. If the bounds are known to be ordered, the lower one is
/// applied last: backward derives from the result which elements a relu cut off, and saves nothing for it.
void clip(NodeTranslation &t) {
  Value *x = t.input(0), *low = t.hasInput(1) ? t.input(1) : nullptr, *high = t.hasInput(2) ? t.input(2) : nullptr;
  std::optional<HostTensor> least = t.knownTensor(low), most = t.knownTensor(high);
  const bool areOrdered =
      least && most && least->values.size() == 1 && most->values.size() == 1 && least->values[0] <= most->values[0];
  if (low && !areOrdered)
    x = t.atLeast(x, low);
  if (high)
    x = t.atMost(x, high);
  t.setOutput(0, areOrdered ? t.atLeast(x, low) : x);
}

void castTo(NodeTranslation &t) {
  int32_t type = static_cast<int32_t>(t.integer("to", 0));
  std::optional<DType> dtype = dtypeOf(type);
  if (!dtype)
    t.reject("elements of " + typeText(type) + " are not supported");
  t.setOutput(0, t.cast(t.input(0), *dtype));
}

void castLike(NodeTranslation &t) { t.setOutput(0, t.cast(t.input(0), t.input(1)->type().dtype())); }

/// stop_gradients.cpp marks identities that stop gradients.
void identity(NodeTranslation &t) {
  if (metadataOf(t.node, stopGradientKey).empty())
    return t.passOn();
  t.setOutput(0, t.make(Op::stopGradient, {t.input(0)}));
}

constexpr TranslationRow rows[] = {
    {"Abs", unaryOp<Op::abs>},
    {"Add", binaryOp<Op::add>},
    {"Cast", castTo},
    {"CastLike", castLike},
    {"Ceil", unaryOp<Op::ceil>},
    {"Clip", clip},
    {"Cos", unaryOp<Op::cos>},
    {"Div", binaryOp<Op::div>},
    {"Erf", unaryOp<Op::erf>},
    {"Exp", unaryOp<Op::exp>},
    {"Floor", unaryOp<Op::floor>},
    {"Identity", identity},
    {"Log", unaryOp<Op::log>},
    {"Max", variadicOp<Op::maximum>},
    {"Mean", mean},
    {"Min", variadicOp<Op::minimum>},
    {"Mod", modulo},
    {"Mul", binaryOp<Op::mul>},
    {"Neg", unaryOp<Op::neg>},
    {"Pow", power},
    {"Reciprocal", reciprocal},
    {"Round", unaryOp<Op::round>},
    {"Sign", unaryOp<Op::sign>},
    {"Sin", unaryOp<Op::sin>},
    {"Sqrt", unaryOp<Op::sqrt>},
    {"Sub", binaryOp<Op::sub>},
    {"Sum", variadicOp<Op::add>},
};

} // namespace

TranslationRows arithmeticTranslations() { return rows; }

} // namespace fsdpc
