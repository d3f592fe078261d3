// batch_norm, its statistics and its derivative. x is [N, C, ...], and a channel consists of its elements in all
// samples. Statistics are f32 even for x of 16 bits, and f64 for x of f64.
#include "ir/ops/batch_norm.h"

#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"
#include <cmath>

namespace fsdpc {

namespace {

constexpr llvm::StringRef batchNormNames[] = {"x", "weight", "bias", "mean", "variance"};
constexpr llvm::StringRef batchNormGradNames[] = {"dy", "x", "mean"};
constexpr llvm::StringRef updateStatisticsNames[] = {"running", "statistic"};

llvm::Error checkChannels(const OpInfo &info, const Type &x) {
  if (!isFloat(x.dtype()) || x.rank() < 2)
    return constraintError(info.name, "C1", "x is float and has a batch and channels, but is " + toString(x));
  if (x.elements() == 0)
    return constraintError(info.name, "C2", "channels have elements, which those of " + toString(x) + " have not");
  return llvm::Error::success();
}

llvm::Error checkVector(const OpInfo &info, llvm::StringRef constraint, const Type &vector, const Type &wanted,
                        llvm::StringRef name) {
  if (vector == wanted)
    return llvm::Error::success();
  return constraintError(info.name, constraint, name + " is " + toString(wanted) + ", but is " + toString(vector));
}

llvm::Error inferBatchNorm(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                           llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(batchNormInfo, operands))
    return error;
  const Type &x = operands[0];
  if (llvm::Error error = checkChannels(batchNormInfo, x))
    return error;
  Type scale(x.dtype(), {x.dim(1)});
  for (unsigned i = 1; i < 5; ++i)
    if (llvm::Error error = checkVector(batchNormInfo, i < 3 ? "C3" : "C4", operands[i],
                                        i < 3 ? scale : batchStatisticType(x), batchNormNames[i]))
      return error;
  const auto &a = attributesOf<BatchNormAttributes>(attributes);
  if (!(a.epsilon >= 0) || !(a.momentum >= 0 && a.momentum <= 1))
    return constraintError(batchNormInfo.name, "C5",
                           "epsilon must not be negative and momentum must be in [0, 1], but they are " +
                               doubleText(a.epsilon) + " and " + doubleText(a.momentum));
  results.push_back(x);
  return llvm::Error::success();
}

llvm::Error inferBatchStatistics(llvm::ArrayRef<Type> operands, const AttributesBase *,
                                 llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(batchStatisticsInfo, operands))
    return error;
  if (llvm::Error error = checkChannels(batchStatisticsInfo, operands[0]))
    return error;
  results.append(2, batchStatisticType(operands[0]));
  return llvm::Error::success();
}

llvm::Error inferBatchNormGrad(llvm::ArrayRef<Type> operands, const AttributesBase *,
                               llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(batchNormGradInfo, operands))
    return error;
  if (llvm::Error error = checkChannels(batchNormGradInfo, operands[1]))
    return error;
  if (llvm::Error error = checkSame(batchNormGradInfo, "C3", operands, 0, 1))
    return error;
  Type statistic = batchStatisticType(operands[1]);
  if (llvm::Error error = checkVector(batchNormGradInfo, "C4", operands[2], statistic, "mean"))
    return error;
  results.append(2, statistic);
  return llvm::Error::success();
}

llvm::Error inferUpdateStatistics(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                                  llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(updateStatisticsInfo, operands))
    return error;
  if (llvm::Error error = checkFloat(updateStatisticsInfo, "C1", operands, 0))
    return error;
  if (llvm::Error error = checkSame(updateStatisticsInfo, "C2", operands, 1, 0))
    return error;
  const auto &a = attributesOf<UpdateStatisticsAttributes>(attributes);
  if (!(a.momentum >= 0 && a.momentum <= 1) || a.ranks < 1)
    return constraintError(updateStatisticsInfo.name, "C3",
                           "momentum must be in [0, 1] and ranks must be 1 or more, but they are " +
                               doubleText(a.momentum) + " and " + llvm::Twine(a.ranks));
  results.push_back(operands[0]);
  return llvm::Error::success();
}

/// x as [outer, channels, inner].
struct Channels {
  int64_t outer, channels, inner;

  explicit Channels(const Type &x) : outer(x.dim(0)), channels(x.dim(1)), inner(productOf(x.shape(), 2, x.rank())) {}
  int64_t channelOf(int64_t element) const { return element / inner % channels; }
  double count() const { return static_cast<double>(outer * inner); }
};

void computeStatistics(const HostTensor &x, std::vector<double> &mean, std::vector<double> &variance) {
  const Channels channels(x.type);
  mean.assign(channels.channels, 0);
  variance.assign(channels.channels, 0);
  for (size_t i = 0; i < x.values.size(); ++i)
    mean[channels.channelOf(i)] += x.values[i] / channels.count();
  for (size_t i = 0; i < x.values.size(); ++i) {
    double centred = x.values[i] - mean[channels.channelOf(i)];
    variance[channels.channelOf(i)] += centred * centred / channels.count();
  }
}

void evaluateBatchStatistics(EvaluateContext &context) {
  computeStatistics(*context.operands[0], context.results[0].values, context.results[1].values);
}

void evaluateBatchNorm(EvaluateContext &context) {
  const auto &attributes = context.get<BatchNormAttributes>();
  const HostTensor &x = *context.operands[0];
  const Channels channels(x.type);
  std::vector<double> mean = context.operands[3]->values, variance = context.operands[4]->values;
  if (attributes.training)
    computeStatistics(x, mean, variance);
  for (size_t i = 0; i < x.values.size(); ++i) {
    int64_t channel = channels.channelOf(i);
    double rstd = 1 / std::sqrt(variance[channel] + attributes.epsilon);
    context.results[0].values[i] = (x.values[i] - mean[channel]) * rstd * context.operands[1]->values[channel] +
                                   context.operands[2]->values[channel];
  }
}

void evaluateBatchNormGrad(EvaluateContext &context) {
  const std::vector<double> &dy = context.operands[0]->values, &x = context.operands[1]->values;
  const Channels channels(context.operands[1]->type);
  for (size_t i = 0; i < x.size(); ++i) {
    int64_t channel = channels.channelOf(i);
    context.results[0].values[channel] += dy[i] * (x[i] - context.operands[2]->values[channel]);
    context.results[1].values[channel] += dy[i];
  }
}

/// The factor, rounded as a constant of the type.
double factorOf(const Type &type, double factor) {
  return type.dtype() == DType::f32 ? static_cast<double>(static_cast<float>(factor)) : factor;
}

/// Applies the micro-steps in order. All ranks of one micro-step have the same statistic.
void evaluateUpdateStatistics(EvaluateContext &context) {
  assert(context.environment && "an op that uses the environment is not evaluated alone");
  const auto &attributes = context.get<UpdateStatisticsAttributes>();
  std::vector<HostTensor> all = context.environment->exchange(updateStatisticsInfo.name.str(), *context.operands[1]);
  std::vector<double> &running = context.results[0].values;
  running = context.operands[0]->values;
  const Type &type = context.operands[0]->type;
  const double kept = factorOf(type, 1 - attributes.momentum), added = factorOf(type, attributes.momentum);
  for (size_t rank = 0; rank < all.size(); rank += attributes.ranks)
    for (size_t i = 0; i < running.size(); ++i)
      running[i] = running[i] * kept + all[rank].values[i] * added;
}

/// With r = rsqrt(variance + epsilon), dot = sum of dy * (x - mean) and sum = sum of dy over a channel's elements:
/// dx = dy * weight * r, dweight = dot * r, dbias = sum, dmean = -sum * weight * r, dvariance = -dot * weight * r^3
/// / 2.
void differentiateBatchNorm(VjpContext &context) {
  const Node &node = context.node;
  assert(!node.get<BatchNormAttributes>().training && "expandBatchStatistics has made the statistics operands");
  Value *dy = context.resultCotangents[0];
  if (!dy)
    return;
  Builder &builder = context.builder;
  Value *x = node.operand(0), *mean = node.operand(3);
  DType computed = mean->type().dtype();
  Value *r = reciprocalDeviation(builder, node.operand(4), node.get<BatchNormAttributes>().epsilon);
  Value *scale = builder.mul(builder.cast(node.operand(1), computed), r);
  if (context.needed[0]) {
    Value *gradient = builder.cast(dy, computed);
    Value *dx = builder.mul(gradient, alongChannels(builder, scale, x->type()));
    context.operandCotangents[0] = builder.cast(dx, x->type().dtype());
  }
  if (llvm::none_of(context.needed.drop_front(), [](bool needed) { return needed; }))
    return;
  Node *sums = builder.create(Op::batchNormGrad, {dy, x, mean});
  Value *dot = sums->result(0), *sum = sums->result(1);
  if (context.needed[1])
    context.operandCotangents[1] = builder.cast(builder.mul(dot, r), x->type().dtype());
  if (context.needed[2])
    context.operandCotangents[2] = builder.cast(sum, x->type().dtype());
  if (context.needed[3])
    context.operandCotangents[3] = builder.unary(Op::neg, builder.mul(sum, scale));
  if (context.needed[4]) {
    Value *cubed = builder.mul(builder.mul(builder.mul(dot, scale), r), r);
    context.operandCotangents[4] = builder.mul(cubed, builder.constantLike(cubed, -0.5));
  }
}

/// dx = (dmean + 2 * (x - mean) * dvariance) / n
void differentiateBatchStatistics(VjpContext &context) {
  Value *dmean = context.resultCotangents[0], *dvariance = context.resultCotangents[1];
  if (!context.needed[0] || (!dmean && !dvariance))
    return;
  Builder &builder = context.builder;
  Value *x = context.node.operand(0);
  const Type &type = x->type();
  auto perElement = [&](Value *vector, double factor) {
    Value *count = builder.constantLike(vector, Channels(type).count() / factor);
    return alongChannels(builder, builder.div(vector, count), type);
  };
  Value *dx = dmean ? perElement(dmean, 1) : nullptr;
  if (dvariance) {
    Value *mean = alongChannels(builder, context.node.result(0), type);
    Value *centred = builder.sub(builder.cast(x, mean->type().dtype()), mean);
    Value *ofVariance = builder.mul(centred, perElement(dvariance, 2));
    dx = dx ? builder.add(dx, ofVariance) : ofVariance;
  }
  context.operandCotangents[0] = builder.cast(dx, type.dtype());
}

template <int operations>
Cost channelCost(const Node &node) {
  return costWithFlops(node, operations * static_cast<double>(node.operand(0)->type().elements()));
}

/// Every axis of x except the channels keeps the batch.
int64_t axisOfBatchNorm(const Node &, unsigned operand, int64_t axis) { return operand == 0 && axis != 1 ? axis : -1; }

} // namespace

Type batchStatisticType(const Type &x) { return Type(x.dtype() == DType::f64 ? DType::f64 : DType::f32, {x.dim(1)}); }

Value *alongChannels(Builder &builder, Value *vector, const Type &x) {
  Shape column(x.rank() - 1, 1);
  column[0] = x.dim(1);
  return builder.broadcast(builder.reshape(vector, column), x.shape());
}

Value *reciprocalDeviation(Builder &builder, Value *variance, double epsilon) {
  return builder.unary(Op::rsqrt, builder.add(variance, builder.constantLike(variance, epsilon)));
}

const OpInfo batchNormInfo = {
    .name = "batch_norm",
    .doc =
        "y = (x - mean) / sqrt(variance + epsilon) * weight + bias, each of them by channel, axis 1 of x. training: "
        "mean and variance, which are the running statistics, are those of the batch instead (of x, in the graph "
        "stage), and the running ones move by them; expandBatchStatistics writes that down. (C1) x is float and has a "
        "batch and channels. (C2) channels have elements. (C3) weight and bias are vectors over channels of x's dtype. "
        "(C4) mean and variance are such vectors of f32, or f64 for x of f64. (C5) epsilon is not negative, momentum "
        "in "
        "[0, 1].",
    .operandNames = batchNormNames,
    .traits = pure,
    .makeAttributes = makeAttributes<BatchNormAttributes>,
    .infer = inferBatchNorm,
    .evaluate = evaluateBatchNorm,
    .vjp = differentiateBatchNorm,
    .cost = channelCost<4>,
    .computeClass = ComputeClass::move,
    .stages = untilTrain,
    .batch = batchByAxis<axisOfBatchNorm>,
};

const OpInfo batchNormGradInfo = {
    .name = "batch_norm_grad",
    .doc =
        "Over the elements of each channel, the sums of dy * (x - mean) and of dy. (C1), (C2) as batch_norm. (C3) dy "
        "and x have one type. (C4) mean as in batch_norm.",
    .operandNames = batchNormGradNames,
    .traits = pure,
    .infer = inferBatchNormGrad,
    .evaluate = evaluateBatchNormGrad,
    .vjp = notDifferentiable,
    .cost = channelCost<4>,
    .computeClass = ComputeClass::reduce,
    .stages = fromTrain,
};

const OpInfo batchStatisticsInfo = {
    .name = "batch_statistics",
    .doc = "Mean and population variance of the elements of each channel of x, axis 1. (C1), (C2) as batch_norm.",
    .operandNames = namesX,
    .traits = pure,
    .infer = inferBatchStatistics,
    .evaluate = evaluateBatchStatistics,
    .vjp = differentiateBatchStatistics,
    .cost = channelCost<4>,
    .computeClass = ComputeClass::reduce,
    .stages = fromTrain,
};

const OpInfo updateStatisticsInfo = {
    .name = "update_statistics",
    .doc = "running * (1 - momentum) + statistic * momentum, for each micro-step of the step in their order; the "
           "`ranks` ranks of one have the same statistic. (C1) running is float. (C2) statistic has its type. (C3) "
           "momentum is in [0, 1], and ranks is at least 1.",
    .operandNames = updateStatisticsNames,
    .traits = pure | usesEnvironment,
    .makeAttributes = makeAttributes<UpdateStatisticsAttributes>,
    .infer = inferUpdateStatistics,
    .evaluate = evaluateUpdateStatistics,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::move,
    .stages = onlyTrain,
};

} // namespace fsdpc
