// Normalisations.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"
#include <cmath>

namespace fsdpc {

namespace {

Shape axesFrom(int64_t first, int64_t rank) {
  Shape axes;
  for (int64_t i = first; i < rank; ++i)
    axes.push_back(i);
  return axes;
}

/// (x - mean) / sqrt(variance + epsilon) over the axes.
Value *standardised(NodeTranslation &t, Value *x, llvm::ArrayRef<int64_t> axes, double epsilon) {
  Value *centred = t.binary(Op::sub, x, t.mean(x, axes, true));
  Value *variance = t.mean(t.binary(Op::mul, centred, centred), axes, true);
  return t.binary(Op::mul, centred, t.unary(Op::rsqrt, t.binary(Op::add, variance, epsilon)));
}

void layerNormalization(NodeTranslation &t) {
  Value *x = t.input(0);
  const Type &type = x->type();
  int64_t axis = t.normalAxis(t.integer("axis", -1), type.rank());
  Type normalised = type.withShape(type.shape().drop_front(axis));
  Value *gamma = t.broadcast(t.input(1), t.broadcastShape(t.input(1)->type().shape(), normalised.shape()));
  Value *beta = t.hasInput(2)
                    ? t.broadcast(t.input(2), t.broadcastShape(t.input(2)->type().shape(), normalised.shape()))
                    : t.constant(normalised, 0);
  Node *node = t.makeNode(Op::layerNorm, {x, gamma, beta}, NormAttributes{axis, t.real("epsilon", 1e-5)});
  t.setOutput(0, node->result(0));
  for (unsigned i = 1; i <= 2; ++i)
    t.refuseOutput(i);
}

void rmsNormalization(NodeTranslation &t) {
  Value *x = t.input(0);
  const Type &type = x->type();
  int64_t axis = t.normalAxis(t.integer("axis", -1), type.rank());
  Type normalised = type.withShape(type.shape().drop_front(axis));
  Value *gamma = t.broadcast(t.input(1), t.broadcastShape(t.input(1)->type().shape(), normalised.shape()));
  t.setOutput(0, t.makeNode(Op::rmsNorm, {x, gamma}, NormAttributes{axis, t.real("epsilon", 1e-5)})->result(0));
}

/// A vector over channels, reshaped to broadcast with x [N, C, ...].
Value *perChannel(NodeTranslation &t, Value *vector, int64_t rank) {
  Shape shape(rank - 1, 1);
  shape[0] = vector->type().elements();
  return t.reshape(vector, shape);
}

/// Normalizes every channel of every sample separately.
void normalizePlanes(NodeTranslation &t) {
  Value *x = t.input(0);
  int64_t rank = x->type().rank();
  Value *y = standardised(t, x, axesFrom(2, rank), t.real("epsilon", 1e-5));
  y = t.binary(Op::mul, y, perChannel(t, t.input(1), rank));
  t.setOutput(0, t.binary(Op::add, y, perChannel(t, t.input(2), rank)));
}

void instanceNormalization(NodeTranslation &t) {
  if (t.input(0)->type().rank() < 3)
    t.reject(toString(t.input(0)->type()) + " has no spatial axes");
  normalizePlanes(t);
}

/// Scale and bias are per channel from opset 21 on, per group before.
void groupNormalization(NodeTranslation &t) {
  Value *x = t.input(0);
  const Type &type = x->type();
  int64_t groups = t.integer("num_groups", 0);
  if (type.rank() < 2 || groups < 1 || type.dim(1) % groups != 0)
    t.reject("num_groups " + llvm::Twine(groups) + " does not fit " + toString(type));
  int64_t rest = type.elements() / std::max<int64_t>(1, type.dim(0) * groups);
  Value *y = standardised(t, t.reshape(x, {type.dim(0), groups, rest}), {2}, t.real("epsilon", 1e-5));
  bool isPerGroup = t.opset < 21;
  y = isPerGroup ? y : t.reshape(y, type.shape());
  y = t.binary(Op::mul, y, perChannel(t, t.input(1), y->type().rank()));
  y = t.binary(Op::add, y, perChannel(t, t.input(2), y->type().rank()));
  t.setOutput(0, t.reshape(y, type.shape()));
}

void meanVarianceNormalization(NodeTranslation &t) {
  Value *x = t.input(0);
  Shape axes = t.has("axes") ? t.axesFrom(1, "axes", x->type().rank()) : Shape{0, 2, 3};
  for (int64_t &axis : axes)
    axis = t.normalAxis(axis, x->type().rank());
  if (llvm::is_contained(axes, 0))
    t.reject("normalising over the batch is not supported");
  Value *centred = t.binary(Op::sub, x, t.mean(x, axes, true));
  Value *deviation = t.unary(Op::sqrt, t.mean(t.binary(Op::mul, centred, centred), axes, true));
  t.setOutput(0, t.binary(Op::div, centred, t.binary(Op::add, deviation, 1e-9)));
}

/// x / |x| along one axis; 0 where |x| is 0.
void lpNormalization(NodeTranslation &t) {
  Value *x = t.input(0);
  int64_t axis = t.normalAxis(t.integer("axis", -1), x->type().rank()), p = t.integer("p", 2);
  if (p != 1 && p != 2)
    t.reject("p=" + llvm::Twine(p) + " is not supported");
  Value *powers = p == 1 ? t.unary(Op::abs, x) : t.binary(Op::mul, x, x);
  Value *sum = t.reduce(Op::reduceSum, powers, {axis}, true);
  Value *isPositive = t.binary(Op::less, t.constantLike(sum, 0), sum);
  Value *safe = t.select(isPositive, sum, t.constantLike(sum, 1));
  t.setOutput(0, t.binary(Op::div, x, p == 1 ? safe : t.unary(Op::sqrt, safe)));
}

/// x / (bias + alpha * mean over `size` neighbouring channels of x^2, those outside as 0)^beta. The mean is a pool over
/// the channels of [N, 1, C, elements].
void localResponseNormalization(NodeTranslation &t) {
  Value *x = t.input(0);
  const Type &type = x->type();
  int64_t size = t.integer("size", 1);
  if (type.rank() < 2 || size < 1 || size >= (int64_t(1) << 31))
    t.reject("size " + llvm::Twine(size) + " does not fit " + toString(type));
  PoolAttributes pool;
  pool.kernel = {size, 1};
  pool.strides = pool.dilations = {1, 1};
  pool.padsBefore = {(size - 1) / 2, 0};
  pool.padsAfter = {size / 2, 0};
  pool.countIncludePad = true;
  std::optional<int64_t> plane = checkedElements(type.shape().drop_front(2));
  if (!plane)
    t.reject(toString(type) + " has too many elements in a plane");
  Value *squares = t.reshape(t.binary(Op::mul, x, x), {type.dim(0), 1, type.dim(1), *plane});
  Value *mean = t.reshape(t.make(Op::averagePool, {squares}, std::move(pool)), type.shape());
  Value *scale = t.binary(Op::add, t.binary(Op::mul, mean, t.real("alpha", 1e-4)), t.real("bias", 1));
  t.setOutput(0, t.binary(Op::mul, x, t.binary(Op::pow, scale, -t.real("beta", 0.75))));
}

/// Outputs 1 and 2 of a training node are the running statistics after the step. They are state, which this translation
/// does not compute. Up to opset 13 a node with these outputs trains. Opset 7 and 8 have two more.
bool trainsInFile(NodeTranslation &t) {
  return t.opset < 14 ? t.wantsOutput(1) || t.wantsOutput(2) : t.integer("training_mode", 0) != 0;
}

/// F.batch_norm(weight.reshape(1, C, -1), None, None, training=True, momentum=0), by which modules standardise weights.
/// Statistics that the graph computes are not state and do not change, and the statistics of one sample are its own.
bool standardisesWeight(NodeTranslation &t) {
  const Type &type = t.input(0)->type();
  const bool isState = !t.input(3)->definer() || !t.input(4)->definer();
  return !isState && type.rank() > 2 && type.dim(0) == 1 && t.real("momentum", 0.9) == 1;
}

/// One of scale, bias, mean and variance. The first two have x's type, statistics are f32.
Value *ofChannels(NodeTranslation &t, unsigned i, const Type &x) {
  Value *vector = t.input(i);
  if (vector->type().elements() != x.dim(1))
    t.reject("input " + llvm::Twine(i) + " is " + toString(vector->type()) + ", but there are " +
             llvm::Twine(x.dim(1)) + " channels");
  DType dtype = i < 3 ? x.dtype() : x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  return t.cast(t.reshape(vector, {x.dim(1)}), dtype);
}

void batchNormalization(NodeTranslation &t) {
  Value *x = t.input(0);
  const Type &type = x->type();
  if (type.rank() < 2)
    t.reject(toString(type) + " has no channels");
  if (t.opset < 9 && t.integer("spatial", 1) == 0)
    t.reject("spatial = 0 is not supported");
  const TrainMode mode = t.state.trainMode;
  BatchNormAttributes attributes{t.real("epsilon", 1e-5)};
  attributes.training = mode == TrainMode::train || (mode == TrainMode::keep && trainsInFile(t));
  const bool isOfWeight = attributes.training && standardisesWeight(t);
  if (attributes.training && !isOfWeight) {
    attributes.synced = t.state.syncBatchNorm;
    attributes.momentum = std::round((1 - t.real("momentum", 0.9)) * 1e12) / 1e12; // 0.1, not 0.09999999999999998
    if (attributes.momentum == 0 || attributes.momentum == 1)
      t.reject("its momentum is " + doubleText(1 - attributes.momentum) +
               ", as exporters write a cumulative average (momentum=None in PyTorch), which is not supported: give the "
               "module a momentum, or take its running statistics as they are with --train_mode eval");
  }
  llvm::SmallVector<Value *, 5> operands = {x};
  for (unsigned i = 1; i < 5; ++i)
    operands.push_back(ofChannels(t, i, type));
  if (isOfWeight)
    normalizePlanes(t);
  else
    t.setOutput(0, t.make(Op::batchNorm, operands, attributes));
  for (unsigned i = 1; i < 5; ++i)
    if (t.wantsOutput(i))
      t.setOutput(i, t.input(i % 2 ? 3 : 4));
}

constexpr TranslationRow rows[] = {
    {"LRN", localResponseNormalization},
    {"BatchNormalization", batchNormalization},
    {"GroupNormalization", groupNormalization, 18},
    {"InstanceNormalization", instanceNormalization},
    {"LayerNormalization", layerNormalization, 17},
    {"LpNormalization", lpNormalization},
    {"MeanVarianceNormalization", meanVarianceNormalization},
    {"RMSNormalization", rmsNormalization, 23},
};

} // namespace

TranslationRows normTranslations() { return rows; }

} // namespace fsdpc
