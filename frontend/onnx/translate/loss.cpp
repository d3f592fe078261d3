// Losses over class labels. The class is axis 1 in ONNX and the last axis in our ops.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"

namespace fsdpc {

namespace {

struct LossInputs {
  Value *scores; ///< [N, d..., C]
  Value *labels; ///< i64 [N, d...]
  LossAttributes attributes;
};

LossInputs inputsOf(NodeTranslation &t) {
  int64_t rank = t.input(0)->type().rank();
  if (rank < 2)
    t.reject(toString(t.input(0)->type()) + " has no class axis");
  LossInputs inputs{t.moveAxis(t.input(0), 1, rank - 1), t.cast(t.input(1), DType::i64), {}};
  inputs.attributes.ignoreIndex = t.integer("ignore_index", inputs.attributes.ignoreIndex);
  return inputs;
}

/// The weight of each label, f32: its class weight, or 0 if it is ignored.
Value *countsOf(NodeTranslation &t, const LossInputs &inputs) {
  Type type(DType::f32, inputs.labels->type().shape());
  bool ignores = t.has("ignore_index");
  if (!ignores && !t.hasInput(2))
    return t.constant(type, 1);
  Value *isIgnored = t.binary(Op::equal, inputs.labels, static_cast<double>(inputs.attributes.ignoreIndex));
  if (!t.hasInput(2))
    return t.cast(t.unary(Op::logicalNot, isIgnored), DType::f32);
  Value *known = t.select(isIgnored, t.constantLike(inputs.labels, 0), inputs.labels);
  Value *weights = t.make(Op::gather, {t.input(2), known}, AxisAttributes{0});
  return t.select(isIgnored, t.constant(weights->type(), 0), weights);
}

/// none: the terms. sum: their sum. mean: their sum divided by the sum of counts.
Value *reduced(NodeTranslation &t, Value *terms, Value *counts) {
  std::string reduction = t.text("reduction", "mean");
  if (reduction == "none")
    return terms;
  Shape axes = allAxes(terms->type().rank());
  Value *sum = t.reduce(Op::reduceSum, terms, axes, false);
  return reduction == "sum" ? sum : t.binary(Op::div, sum, t.reduce(Op::reduceSum, counts, axes, false));
}

Value *lossOf(NodeTranslation &t, Op op, const LossInputs &inputs) {
  Value *terms = t.makeNode(op, {inputs.scores, inputs.labels}, inputs.attributes)->result(0);
  Value *counts = countsOf(t, inputs);
  if (t.hasInput(2))
    terms = t.binary(Op::mul, terms, counts);
  return reduced(t, terms, counts);
}

void softmaxCrossEntropy(NodeTranslation &t) {
  LossInputs inputs = inputsOf(t);
  t.setOutput(0, lossOf(t, Op::crossEntropy, inputs));
  if (t.wantsOutput(1))
    t.setOutput(1, t.make(Op::logSoftmax, {t.input(0)}, AxisAttributes{1}));
}

void negativeLogLikelihood(NodeTranslation &t) { t.setOutput(0, lossOf(t, Op::nll, inputsOf(t))); }

constexpr TranslationRow rows[] = {
    {"NegativeLogLikelihoodLoss", negativeLogLikelihood},
    {"SoftmaxCrossEntropyLoss", softmaxCrossEntropy},
};

} // namespace

TranslationRows lossTranslations() { return rows; }

} // namespace fsdpc
