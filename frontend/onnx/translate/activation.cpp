// Activation functions.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"

namespace fsdpc {

namespace {

template <Op op>
void unaryOp(NodeTranslation &t) {
  t.setOutput(0, t.unary(op, t.input(0)));
}

// At 0, where zero biases and padding put many values, derivatives match PyTorch's: those of the branch for x <= 0.

Value *isPositive(NodeTranslation &t, Value *x) { return t.binary(Op::less, t.constantLike(x, 0), x); }

/// alpha * (e^x - 1) where x <= 0. The exponential never gets a positive x, so that the unselected branch stays finite.
Value *exponentialBelowZero(NodeTranslation &t, Value *x, double alpha) {
  Value *grown = t.unary(Op::exp, t.select(isPositive(t, x), t.constantLike(x, 0), x));
  return t.binary(Op::mul, t.binary(Op::sub, grown, 1), alpha);
}

void elu(NodeTranslation &t) {
  Value *x = t.input(0);
  t.setOutput(0, t.select(isPositive(t, x), x, exponentialBelowZero(t, x, t.real("alpha", 1))));
}

void celu(NodeTranslation &t) {
  Value *x = t.input(0);
  double alpha = t.real("alpha", 1);
  Value *below = exponentialBelowZero(t, t.binary(Op::mul, x, 1 / alpha), alpha);
  t.setOutput(0, t.select(isPositive(t, x), x, below));
}

void selu(NodeTranslation &t) {
  Value *x = t.input(0);
  Value *below = exponentialBelowZero(t, x, t.real("alpha", 1.67326319217681884765625));
  Value *chosen = t.select(isPositive(t, x), x, below);
  t.setOutput(0, t.binary(Op::mul, chosen, t.real("gamma", 1.05070102214813232421875)));
}

void leakyRelu(NodeTranslation &t) {
  Value *x = t.input(0);
  t.setOutput(0, t.select(isPositive(t, x), x, t.binary(Op::mul, x, t.real("alpha", 0.01))));
}

void pRelu(NodeTranslation &t) {
  Value *x = t.input(0);
  t.setOutput(0, t.select(isPositive(t, x), x, t.binary(Op::mul, x, t.input(1))));
}

void thresholdedRelu(NodeTranslation &t) {
  Value *x = t.input(0);
  Value *above = t.binary(Op::less, t.constantLike(x, t.real("alpha", 1)), x);
  t.setOutput(0, t.select(above, x, t.constantLike(x, 0)));
}

/// Moves x towards 0 by `bias`; 0 between -lambd and lambd.
void shrink(NodeTranslation &t) {
  Value *x = t.input(0);
  double limit = t.real("lambd", 0.5), bias = t.real("bias", 0);
  Value *zero = t.constantLike(x, 0), *isAbove = t.binary(Op::less, t.constantLike(x, limit), x);
  Value *above = t.select(isAbove, t.binary(Op::sub, x, bias), zero);
  t.setOutput(0, t.select(t.binary(Op::less, x, -limit), t.binary(Op::add, x, bias), above));
}

/// clamp(alpha * x + beta, 0, 1)
Value *hardSigmoidOf(NodeTranslation &t, Value *x, double alpha, double beta) {
  Value *line = t.binary(Op::add, t.binary(Op::mul, x, alpha), beta);
  return t.unary(Op::relu, t.atMost(line, t.constantLike(line, 1)));
}

void hardSigmoid(NodeTranslation &t) {
  t.setOutput(0, hardSigmoidOf(t, t.input(0), t.real("alpha", 0.2), t.real("beta", 0.5)));
}

void hardSwish(NodeTranslation &t) {
  t.setOutput(0, t.binary(Op::mul, t.input(0), hardSigmoidOf(t, t.input(0), 1.0 / 6, 0.5)));
}

void swish(NodeTranslation &t) {
  Value *x = t.input(0);
  double alpha = t.real("alpha", 1);
  Value *scaled = alpha == 1 ? x : t.binary(Op::mul, x, alpha);
  t.setOutput(0, t.binary(Op::mul, x, t.unary(Op::sigmoid, scaled)));
}

/// log(1 + e^x) = max(x, 0) + log1p(e^-|x|), which does not overflow.
Value *softplusOf(NodeTranslation &t, Value *x) {
  Value *tail = t.unary(Op::log1p, t.unary(Op::exp, t.unary(Op::neg, t.unary(Op::abs, x))));
  return t.binary(Op::add, t.binary(Op::maximum, x, 0.0), tail);
}

void softplus(NodeTranslation &t) { t.setOutput(0, softplusOf(t, t.input(0))); }

void mish(NodeTranslation &t) {
  t.setOutput(0, t.binary(Op::mul, t.input(0), t.unary(Op::tanh, softplusOf(t, t.input(0)))));
}

void softsign(NodeTranslation &t) {
  Value *x = t.input(0);
  t.setOutput(0, t.binary(Op::div, x, t.binary(Op::add, t.unary(Op::abs, x), 1)));
}

void gelu(NodeTranslation &t) {
  std::string form = t.text("approximate", "none");
  if (form != "none" && form != "tanh")
    t.reject("approximate='" + form + "' is not supported");
  t.setOutput(0, t.unary(form == "tanh" ? Op::geluTanh : Op::gelu, t.input(0)));
}

template <Op op>
void alongAxis(NodeTranslation &t) {
  int64_t axis = t.normalAxis(t.integer("axis", -1), t.input(0)->type().rank());
  t.setOutput(0, t.make(op, {t.input(0)}, AxisAttributes{axis}));
}

/// 1 at the first maximum along the axis, 0 elsewhere.
void hardmax(NodeTranslation &t) {
  Value *x = t.input(0);
  int64_t axis = t.normalAxis(t.integer("axis", -1), x->type().rank());
  Shape line(x->type().shape());
  line[axis] = 1;
  Value *winner = t.reshape(t.make(Op::argMax, {x}, AxisAttributes{axis}), line);
  t.setOutput(0, t.cast(t.binary(Op::equal, winner, t.iota(x->type().shape(), axis)), x->type().dtype()));
}

constexpr TranslationRow rows[] = {
    {"Celu", celu},
    {"Elu", elu},
    {"Gelu", gelu},
    {"Hardmax", hardmax, 13},
    {"HardSigmoid", hardSigmoid},
    {"HardSwish", hardSwish},
    {"LeakyRelu", leakyRelu},
    {"LogSoftmax", alongAxis<Op::logSoftmax>, 13},
    {"Mish", mish},
    {"PRelu", pRelu},
    {"Relu", unaryOp<Op::relu>},
    {"Selu", selu},
    {"Shrink", shrink},
    {"Sigmoid", unaryOp<Op::sigmoid>},
    {"Softmax", alongAxis<Op::softmax>, 13},
    {"Softplus", softplus},
    {"Softsign", softsign},
    {"Swish", swish},
    {"Tanh", unaryOp<Op::tanh>},
    {"ThresholdedRelu", thresholdedRelu},
};

} // namespace

TranslationRows activationTranslations() { return rows; }

} // namespace fsdpc
