// layer_norm, rms_norm and their derivatives.
#include "ir/ops/helpers.h"
#include <cmath>

namespace fsdpc {

namespace {

constexpr llvm::StringRef layerNormNames[] = {"x", "gamma", "beta"};
constexpr llvm::StringRef layerNormGradNames[] = {"dy", "x", "gamma", "mean", "rstd"};
constexpr llvm::StringRef rmsNormNames[] = {"x", "gamma"};
constexpr llvm::StringRef rmsNormGradNames[] = {"dy", "x", "gamma", "rstd"};

/// x, gamma and (if present) beta as all of these ops take them.
llvm::Error checkNormalised(const OpInfo &info, const Type &x, llvm::ArrayRef<Type> scales,
                            const NormAttributes &attributes) {
  if (llvm::Error error = checkAxis(info, "C1", attributes.axis, x.rank()))
    return error;
  llvm::ArrayRef<int64_t> normalised = x.shape().drop_front(attributes.axis);
  if (llvm::is_contained(normalised, 0))
    return constraintError(info.name, "C2", "the normalised dims of " + toString(x) + " are not empty");
  for (const Type &scale : scales)
    if (scale.shape() != normalised || scale.dtype() != x.dtype())
      return constraintError(info.name, "C3",
                             "gamma and beta have the dims of x from axis " + llvm::Twine(attributes.axis) +
                                 " on: " + toString(scale) + " for " + toString(x));
  if (!isFloat(x.dtype()))
    return constraintError(info.name, "C4", "x is float but is " + toString(x));
  return llvm::Error::success();
}

llvm::Error checkEpsilon(const OpInfo &info, const NormAttributes &attributes) {
  if (attributes.epsilon >= 0)
    return llvm::Error::success();
  return constraintError(info.name, "C5", "epsilon is not negative but is " + doubleText(attributes.epsilon));
}

/// One number per row.
Type statisticOf(const Type &x, const NormAttributes &attributes) {
  return Type(DType::f32, x.shape().take_front(attributes.axis));
}

llvm::Error inferLayerNorm(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                           llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = layerNormInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  const auto &a = attributesOf<NormAttributes>(attributes);
  const Type &x = operands[0];
  if (llvm::Error error = checkNormalised(info, x, operands.drop_front(1), a))
    return error;
  if (llvm::Error error = checkEpsilon(info, a))
    return error;
  Type statistic = statisticOf(x, a);
  results.append({x, statistic, statistic});
  return llvm::Error::success();
}

llvm::Error inferLayerNormGrad(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                               llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = layerNormGradInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  const auto &a = attributesOf<NormAttributes>(attributes);
  const Type &x = operands[1];
  if (llvm::Error error = checkNormalised(info, x, operands.slice(2, 1), a))
    return error;
  if (llvm::Error error = checkSame(info, "C6", operands, 0, 1))
    return error;
  Type statistic = statisticOf(x, a);
  if (operands[3] != statistic || operands[4] != statistic)
    return constraintError(info.name, "C7",
                           "mean and rstd are " + toString(statistic) + ", but are " + toString(operands[3]) + " and " +
                               toString(operands[4]));
  results.append({x, operands[2], operands[2]});
  return llvm::Error::success();
}

void evaluateLayerNorm(EvaluateContext &context) {
  const auto &attributes = context.get<NormAttributes>();
  const HostTensor &x = *context.operands[0];
  const int64_t count = productOf(x.type.shape(), attributes.axis, x.type.rank());
  const int64_t rows = productOf(x.type.shape(), 0, attributes.axis);
  for (int64_t row = 0; row < rows; ++row) {
    const double *in = x.values.data() + row * count;
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < count; ++i)
      mean += in[i] / static_cast<double>(count);
    for (int64_t i = 0; i < count; ++i)
      variance += (in[i] - mean) * (in[i] - mean) / static_cast<double>(count);
    double rstd = 1 / std::sqrt(variance + attributes.epsilon);
    for (int64_t i = 0; i < count; ++i)
      context.results[0].values[row * count + i] =
          (in[i] - mean) * rstd * context.operands[1]->values[i] + context.operands[2]->values[i];
    context.results[1].values[row] = mean;
    context.results[2].values[row] = rstd;
  }
}

/// With n = (x - mean) * rstd and h = dy * gamma: dx = rstd * (h - average(h) - n * average(h * n)).
void evaluateLayerNormGrad(EvaluateContext &context) {
  const HostTensor &x = *context.operands[1];
  const std::vector<double> &dy = context.operands[0]->values;
  const std::vector<double> &gamma = context.operands[2]->values;
  const int64_t axis = context.get<NormAttributes>().axis;
  const int64_t count = productOf(x.type.shape(), axis, x.type.rank());
  const int64_t rows = productOf(x.type.shape(), 0, axis);
  for (int64_t row = 0; row < rows; ++row) {
    const double mean = context.operands[3]->values[row];
    const double rstd = context.operands[4]->values[row];
    auto normalised = [&](int64_t i) { return (x.values[row * count + i] - mean) * rstd; };
    double averageH = 0, averageHN = 0;
    for (int64_t i = 0; i < count; ++i) {
      double h = dy[row * count + i] * gamma[i];
      averageH += h / static_cast<double>(count);
      averageHN += h * normalised(i) / static_cast<double>(count);
    }
    for (int64_t i = 0; i < count; ++i) {
      double d = dy[row * count + i];
      context.results[0].values[row * count + i] = rstd * (d * gamma[i] - averageH - normalised(i) * averageHN);
      context.results[1].values[i] += d * normalised(i);
      context.results[2].values[i] += d;
    }
  }
}

llvm::Error inferRmsNorm(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                         llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = rmsNormInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  const auto &a = attributesOf<NormAttributes>(attributes);
  if (llvm::Error error = checkNormalised(info, operands[0], operands.drop_front(1), a))
    return error;
  if (llvm::Error error = checkEpsilon(info, a))
    return error;
  results.append({operands[0], statisticOf(operands[0], a)});
  return llvm::Error::success();
}

llvm::Error inferRmsNormGrad(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                             llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = rmsNormGradInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  const auto &a = attributesOf<NormAttributes>(attributes);
  const Type &x = operands[1], statistic = statisticOf(x, a);
  if (llvm::Error error = checkNormalised(info, x, operands.slice(2, 1), a))
    return error;
  if (llvm::Error error = checkSame(info, "C6", operands, 0, 1))
    return error;
  if (operands[3] != statistic)
    return constraintError(info.name, "C7", "rstd is " + toString(statistic) + ", but is " + toString(operands[3]));
  results.append({x, operands[2]});
  return llvm::Error::success();
}

void evaluateRmsNorm(EvaluateContext &context) {
  const auto &attributes = context.get<NormAttributes>();
  const HostTensor &x = *context.operands[0];
  const int64_t count = productOf(x.type.shape(), attributes.axis, x.type.rank());
  const int64_t rows = productOf(x.type.shape(), 0, attributes.axis);
  for (int64_t row = 0; row < rows; ++row) {
    const double *in = x.values.data() + row * count;
    double power = 0;
    for (int64_t i = 0; i < count; ++i)
      power += in[i] * in[i] / static_cast<double>(count);
    double rstd = 1 / std::sqrt(power + attributes.epsilon);
    for (int64_t i = 0; i < count; ++i)
      context.results[0].values[row * count + i] = in[i] * rstd * context.operands[1]->values[i];
    context.results[1].values[row] = rstd;
  }
}

/// With n = x * rstd and h = dy * gamma: dx = rstd * (h - n * average(h * n)).
void evaluateRmsNormGrad(EvaluateContext &context) {
  const HostTensor &x = *context.operands[1];
  const std::vector<double> &dy = context.operands[0]->values;
  const std::vector<double> &gamma = context.operands[2]->values;
  const int64_t axis = context.get<NormAttributes>().axis;
  const int64_t count = productOf(x.type.shape(), axis, x.type.rank());
  const int64_t rows = productOf(x.type.shape(), 0, axis);
  for (int64_t row = 0; row < rows; ++row) {
    const double rstd = context.operands[3]->values[row];
    auto normalised = [&](int64_t i) { return x.values[row * count + i] * rstd; };
    double averageHN = 0;
    for (int64_t i = 0; i < count; ++i)
      averageHN += dy[row * count + i] * gamma[i] * normalised(i) / static_cast<double>(count);
    for (int64_t i = 0; i < count; ++i) {
      double d = dy[row * count + i];
      context.results[0].values[row * count + i] = rstd * (d * gamma[i] - normalised(i) * averageHN);
      context.results[1].values[i] += d * normalised(i);
    }
  }
}

void differentiateRmsNorm(VjpContext &context) {
  assert(!context.resultCotangents[1] && "rstd is kept for the derivative only; nothing else reads it");
  Value *dy = context.resultCotangents[0];
  if (!dy || llvm::none_of(context.needed, [](bool needed) { return needed; }))
    return;
  const Node &node = context.node;
  Node *gradient = context.builder.create(Op::rmsNormGrad, {dy, node.operand(0), node.operand(1), node.result(1)},
                                          node.get<NormAttributes>());
  for (unsigned i = 0; i < 2; ++i)
    if (context.needed[i])
      context.operandCotangents[i] = gradient->result(i);
}

void differentiateLayerNorm(VjpContext &context) {
  assert(!context.resultCotangents[1] && !context.resultCotangents[2] &&
         "mean and rstd are kept for the derivative only; nothing else reads them");
  Value *dy = context.resultCotangents[0];
  if (!dy || llvm::none_of(context.needed, [](bool needed) { return needed; }))
    return;
  const Node &node = context.node;
  Node *gradient =
      context.builder.create(Op::layerNormGrad, {dy, node.operand(0), node.operand(1), node.result(1), node.result(2)},
                             node.get<NormAttributes>());
  for (unsigned i = 0; i < 3; ++i)
    if (context.needed[i])
      context.operandCotangents[i] = gradient->result(i);
}

} // namespace

const OpInfo layerNormInfo = {
    .name = "layer_norm",
    .doc = "y = (x - mean) * rstd * gamma + beta with mean and rstd = 1 / sqrt(population variance + epsilon) over "
           "dims [axis, rank) "
           "of x; mean and rstd are kept for the derivative only. (C1) the axis is one of x. (C2) the normalised dims "
           "are not empty. "
           "(C3) gamma and beta have these dims and the dtype of x. (C4) x is float. (C5) epsilon is not negative.",
    .operandNames = layerNormNames,
    .traits = pure,
    .makeAttributes = makeAttributes<NormAttributes>,
    .infer = inferLayerNorm,
    .evaluate = evaluateLayerNorm,
    .vjp = differentiateLayerNorm,
    .cost =
        [](const Node &node) { return costWithFlops(node, 8 * static_cast<double>(node.result()->type().elements())); },
};

const OpInfo layerNormGradInfo = {
    .name = "layer_norm_grad",
    .doc = "The cotangents dx, dgamma, dbeta of layer_norm. (C1) to (C4) as layer_norm. (C6) dy and x have one type. "
           "(C7) mean and "
           "rstd are f32 of dims [0, axis) of x.",
    .operandNames = layerNormGradNames,
    .traits = pure,
    .makeAttributes = makeAttributes<NormAttributes>,
    .infer = inferLayerNormGrad,
    .evaluate = evaluateLayerNormGrad,
    .vjp = notDifferentiable,
    .cost =
        [](const Node &node) {
          return costWithFlops(node, 16 * static_cast<double>(node.result()->type().elements()));
        },
};

const OpInfo rmsNormInfo = {
    .name = "rms_norm",
    .doc = "y = x * rstd * gamma with rstd = 1 / sqrt(mean of x * x + epsilon) over dims [axis, rank) of x (Zhang and "
           "Sennrich, arXiv 1910.07467); rstd is kept for the derivative only. (C1) to (C5) as layer_norm, without "
           "beta.",
    .operandNames = rmsNormNames,
    .traits = pure,
    .makeAttributes = makeAttributes<NormAttributes>,
    .infer = inferRmsNorm,
    .evaluate = evaluateRmsNorm,
    .vjp = differentiateRmsNorm,
    .cost =
        [](const Node &node) { return costWithFlops(node, 5 * static_cast<double>(node.result()->type().elements())); },
};

const OpInfo rmsNormGradInfo = {
    .name = "rms_norm_grad",
    .doc = "The cotangents dx and dgamma of rms_norm. (C1) to (C4) as layer_norm. (C6) dy and x have one type. (C7) "
           "rstd is f32 of dims [0, axis) of x.",
    .operandNames = rmsNormGradNames,
    .traits = pure,
    .makeAttributes = makeAttributes<NormAttributes>,
    .infer = inferRmsNormGrad,
    .evaluate = evaluateRmsNormGrad,
    .vjp = notDifferentiable,
    .cost =
        [](const Node &node) {
          return costWithFlops(node, 10 * static_cast<double>(node.result()->type().elements()));
        },
};

} // namespace fsdpc
