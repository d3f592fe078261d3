// Reductions and ops with a separate derivative op: softmax, LayerNorm, attention, losses as terms of the graph.
#include "ir/ops/attention.h"
#include "tests/random/productions.h"

#include <cmath>

namespace fsdpc {

namespace {

std::optional<Tensor> reduce(GraphMaker &g, Op op) {
  Tensor x = g.anyFloat();
  bool isExtremum = op == Op::reduceMax || op == Op::reduceMin;
  if (isExtremum)
    x = g.withoutTies(x);
  if (op == Op::reduceProd)
    x = g.scaledTo(x, 1.25);
  ReduceAttributes own;
  own.keepDims = g.random->chance(0.4);
  int64_t terms = 1, before = 0;
  for (int64_t axis : g.freeAxes(x)) {
    if (g.random->chance(0.4) || (op == Op::reduceProd && terms * x.type().dim(axis) > 8))
      continue;
    own.axes.push_back(axis);
    terms *= x.type().dim(axis);
    before += axis < x.batch;
  }
  if (own.axes.empty())
    return std::nullopt;
  int64_t batch = x.batch < 0 || own.keepDims ? x.batch : x.batch - before;
  double scale = op == Op::reduceSum ? x.scale * std::sqrt(static_cast<double>(terms)) : x.scale;
  return g.make(op, {x}, own, {batch, scale, isExtremum && x.exact});
}

std::optional<Tensor> softmax(GraphMaker &g, Op op) {
  Tensor x = g.anyFloat();
  if (g.freeAxes(x).empty())
    return std::nullopt;
  return g.make(op, {x}, AxisAttributes{g.random->pick(g.freeAxes(x))},
                {x.batch, op == Op::softmax ? 1 : x.scale + 2.});
}

std::optional<Tensor> rmsNorm(GraphMaker &g, Op op) {
  Tensor x = g.perSample(g.batchedFloat(), g.smallShape(g.random->between(1, 3)));
  int64_t axis = g.random->between(1, x.rank() - 1);
  NormAttributes own{axis, g.random->pick({1e-3, 1e-2, 0.1})};
  return g.make(op, {x, g.parameter(x.shape().drop_front(axis))}, own, {0, 3});
}

/// Elements of a row differ. A normalised row of equal elements would be 0 except for rounding errors.
std::optional<Tensor> layerNorm(GraphMaker &g, Op op) {
  Tensor x = g.withoutTies(g.perSample(g.batchedFloat(), g.smallShape(g.random->between(1, 3))));
  int64_t axis = g.random->between(1, x.rank() - 1);
  llvm::ArrayRef<int64_t> normalised = x.shape().drop_front(axis);
  NormAttributes own{axis, g.random->pick({1e-3, 1e-2, 0.1})};
  return g.make(op, {x, g.parameter(normalised), g.parameter(normalised)}, own, {0, 3});
}

/// Mostly with statistics of the batch, either of this rank or of all ranks.
std::optional<Tensor> batchNorm(GraphMaker &g, Op op) {
  Tensor x = g.withoutTies(g.perSample(g.batchedFloat(), g.smallShape(g.random->between(1, 4), 24)));
  const int64_t channels = x.type().dim(1), elements = x.type().elements() / channels;
  BatchNormAttributes own{g.random->pick({1e-2, 0.1})};
  own.training = !g.options.samplesApart && elements > 1 && g.random->chance(0.8);
  own.synced = own.training && g.syncedNorms;
  own.momentum = g.random->pick({0.1, 0.5});
  return g.make(op, {x, g.parameter({channels}), g.parameter({channels}), g.buffer(channels), g.buffer(channels)}, own,
                {0, 3});
}

/// An additive mask on the scores [B, heads, queries, keys]: constant, or one per sample.
Tensor attentionMask(GraphMaker &g, int64_t queries, int64_t keys) {
  if (g.random->chance(0.5))
    return g.constants(DType::f32, g.random->chance(0.5) ? Shape{queries, keys} : Shape{1, 1, 1, keys}, -4, 0);
  for (const Tensor &x : g.floats)
    if (x.exact && x.batch == 0 && !x.value->definer()) // an input: nothing to differentiate
      return g.perSample(x, {1, g.random->chance(0.5) ? queries : 1, keys}, false);
  return g.constants(DType::f32, {keys}, -4, 0);
}

std::optional<Tensor> attention(GraphMaker &g, Op op) {
  int64_t queries = g.random->between(1, 5), width = g.random->between(1, 4);
  int64_t keyHeads = g.random->between(1, 3), heads = keyHeads * (g.random->chance(0.3) ? g.random->between(2, 3) : 1);
  // With one key, the derivative by queries and keys is 0 except for rounding errors.
  int64_t keys = std::max<int64_t>(2, g.random->chance(0.5) ? queries : g.random->between(1, 5));
  AttentionAttributes own;
  own.scale = 1 / std::sqrt(static_cast<double>(width));
  own.causal = g.random->chance(0.4);
  own.sequenceFirst = g.random->chance(0.5);
  own.window = g.random->chance(0.3) ? g.random->between(1, 4) : 0;
  own.softcap = g.random->pick({0.0, 0.0, 0.5, 3.0});
  auto shape = [&](int64_t ofHeads, int64_t length) {
    return own.sequenceFirst ? Shape{length, ofHeads, width} : Shape{ofHeads, length, width};
  };
  llvm::SmallVector<Tensor, 6> operands = {g.perSample(g.batchedFloat(), shape(heads, queries)),
                                           g.perSample(g.batchedFloat(), shape(keyHeads, keys)),
                                           g.perSample(g.anyFloat(), shape(keyHeads, keys))};
  for (unsigned i = 0; i < AttentionExtras::maxMasks && g.random->chance(0.4); ++i)
    operands.push_back(attentionMask(g, queries, keys));
  own.documents = queries == keys && g.random->chance(0.3);
  if (own.documents)
    operands.push_back(g.documents(queries));
  return g.make(op, operands, own, {0, operands[2].scale});
}

std::optional<Tensor> rotary(GraphMaker &g, Op op) {
  int64_t width = 2 * g.random->between(1, 3);
  Shape sampleShape = g.smallShape(g.random->between(0, 2), 12);
  Shape table = {sampleShape.empty() || g.random->chance(0.3) ? 1 : sampleShape.back(), width};
  sampleShape.push_back(width);
  Tensor x = g.perSample(g.batchedFloat(), sampleShape);
  Tensor cos = g.constants(DType::f32, table, -1, 1), sin = g.constants(DType::f32, table, -1, 1);
  return g.make(op, {x, cos, sin}, RotaryAttributes{g.random->chance(0.3)}, {0, 2 * x.scale});
}

/// The positions of a sample that have a label each: one, or several along an axis.
Shape positionsOfSample(GraphMaker &g) { return g.random->chance(0.6) ? Shape{g.random->between(1, 4)} : Shape{}; }

/// One term per position and class label. A label may exclude its position.
std::optional<Tensor> lossTerms(GraphMaker &g, Op op) {
  int64_t classes = g.random->between(2, 6);
  const Shape positions = positionsOfSample(g);
  Shape scores = positions;
  scores.push_back(classes);
  Tensor logits = g.perSample(g.anyFloat(), scores);
  Tensor labels = g.cast(g.integerBelow(classes), DType::i64);
  labels = g.perSample(labels, positions, false);
  if (labels.limit > classes)
    return std::nullopt;
  LossAttributes own;
  own.ignoreIndex = g.random->chance(0.3) ? 1 : -100;
  if (op == Op::crossEntropy)
    own.labelSmoothing = g.random->pick({0.0, 0.0, 0.1});
  else
    logits = g.make(Op::logSoftmax, {logits}, AxisAttributes{logits.rank() - 1}, {0, logits.scale + 2});
  return g.make(op, {logits, labels}, own, {0, logits.scale + 2});
}

/// Terms of the loss of a linear layer, with labels that the graph makes. The cap is far from where tanh is flat.
std::optional<Tensor> linearLossTerms(GraphMaker &g, Op op) {
  const int64_t classes = g.random->between(2, 6), width = g.smallDim();
  const Shape positions = positionsOfSample(g);
  Shape rows = positions;
  rows.push_back(width);
  Tensor hidden = g.perSample(g.batchedFloat(), rows);
  Tensor labels = g.perSample(g.cast(g.integerBelow(classes), DType::i64), positions, false);
  if (labels.limit > classes)
    return std::nullopt;
  LinearLossAttributes own;
  own.loss = {g.random->chance(0.3) ? 1 : -100, g.random->pick({0.0, 0.0, 0.1})};
  own.transposeB = g.random->chance(0.5);
  own.chunk = g.random->between(1, 8);
  Tensor weight = g.parameter(own.transposeB ? Shape{classes, width} : Shape{width, classes});
  const double scale = hidden.scale * weight.scale * std::sqrt(static_cast<double>(width)) + 1;
  own.softcap = g.random->chance(0.3) ? 2 * scale : 0;
  llvm::SmallVector<Tensor, 4> operands = {hidden, weight, labels};
  if (g.random->chance(0.4))
    operands.push_back(g.parameter({classes}));
  return g.make(op, operands, own, {0, scale + 2});
}

constexpr Production rows[] = {
    {Op::reduceSum, reduce},    {Op::reduceSum, reduce},       {Op::reduceMax, reduce},
    {Op::reduceMin, reduce},    {Op::reduceProd, reduce},      {Op::softmax, softmax},
    {Op::logSoftmax, softmax},  {Op::layerNorm, layerNorm},    {Op::rmsNorm, rmsNorm},
    {Op::attention, attention}, {Op::crossEntropy, lossTerms}, {Op::nll, lossTerms},
    {Op::rotary, rotary},       {Op::batchNorm, batchNorm},    {Op::linearCrossEntropy, linearLossTerms},
};

} // namespace

llvm::ArrayRef<Production> rowProductions() { return rows; }

} // namespace fsdpc
