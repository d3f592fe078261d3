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

/// One number per row.
Type statisticOf(const Type &x, const NormAttributes &attributes) {
  return Type(DType::f32, x.shape().take_front(attributes.axis));
}

/// y, and as many statistics as there are scales: layer_norm keeps mean and rstd, rms_norm rstd.
template <const OpInfo &info>
llvm::Error inferNorm(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                      llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  const auto &a = attributesOf<NormAttributes>(attributes);
  const Type &x = operands[0];
  if (llvm::Error error = checkNormalised(info, x, operands.drop_front(1), a))
    return error;
  if (a.epsilon < 0)
    return constraintError(info.name, "C5", "epsilon is not negative but is " + doubleText(a.epsilon));
  results.push_back(x);
  results.append(operands.size() - 1, statisticOf(x, a));
  return llvm::Error::success();
}

/// Operands dy, x, gamma and the statistics; results dx and a cotangent for every scale.
template <const OpInfo &info>
llvm::Error inferNormGrad(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                          llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  const auto &a = attributesOf<NormAttributes>(attributes);
  const Type &x = operands[1];
  if (llvm::Error error = checkNormalised(info, x, operands.slice(2, 1), a))
    return error;
  if (llvm::Error error = checkSame(info, "C6", operands, 0, 1))
    return error;
  llvm::ArrayRef<Type> statistics = operands.drop_front(3);
  for (const Type &statistic : statistics)
    if (statistic != statisticOf(x, a))
      return constraintError(
          info.name, "C7", "one number per row is " + toString(statisticOf(x, a)) + ", but is " + toString(statistic));
  llvm::Expected<DType> dtype = dtypeOfSum(info, operands[2].dtype(), a.wide);
  if (!dtype)
    return dtype.takeError();
  results.push_back(x);
  results.append(statistics.size(), operands[2].withDType(*dtype));
  return llvm::Error::success();
}

/// The rows that are normalised one by one, and how many elements each has.
struct Rows {
  int64_t rows, count;

  Rows(const Type &x, int64_t axis)
      : rows(productOf(x.shape(), 0, axis)), count(productOf(x.shape(), axis, x.rank())) {}
};

void evaluateLayerNorm(EvaluateContext &context) {
  const auto &attributes = context.get<NormAttributes>();
  const HostTensor &x = *context.operands[0];
  const auto [rows, count] = Rows(x.type, attributes.axis);
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
  const auto [rows, count] = Rows(x.type, context.get<NormAttributes>().axis);
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

void evaluateRmsNorm(EvaluateContext &context) {
  const auto &attributes = context.get<NormAttributes>();
  const HostTensor &x = *context.operands[0];
  const auto [rows, count] = Rows(x.type, attributes.axis);
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
  const auto [rows, count] = Rows(x.type, context.get<NormAttributes>().axis);
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

/// The derivative takes dy, x, gamma and the statistics, which are the results after y.
template <Op gradientOp>
void differentiateNorm(VjpContext &context) {
  assert(llvm::none_of(context.resultCotangents.drop_front(1), [](Value *cotangent) { return cotangent; }) &&
         "statistics are kept for the derivative only; nothing else reads them");
  Value *dy = context.resultCotangents[0];
  if (!dy || llvm::none_of(context.needed, [](bool needed) { return needed; }))
    return;
  const Node &node = context.node;
  llvm::SmallVector<Value *, 5> operands = {dy, node.operand(0), node.operand(1)};
  for (unsigned i = 1; i < node.resultCount(); ++i)
    operands.push_back(node.result(i));
  Node *gradient = context.builder.create(gradientOp, operands, node.get<NormAttributes>());
  for (unsigned i = 0; i < node.operandCount(); ++i)
    if (context.needed[i])
      context.operandCotangents[i] = gradient->result(i);
}

/// So many operations per element of the first result.
template <int operations>
Cost normCost(const Node &node) {
  return costWithFlops(node, operations * static_cast<double>(node.result()->type().elements()));
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
    .infer = inferNorm<layerNormInfo>,
    .evaluate = evaluateLayerNorm,
    .vjp = differentiateNorm<Op::layerNormGrad>,
    .cost = normCost<8>,
};

const OpInfo layerNormGradInfo = {
    .name = "layer_norm_grad",
    .doc = "The cotangents dx, dgamma, dbeta of layer_norm. (C1) to (C4) as layer_norm. (C6) dy and x have one type. "
           "(C7) mean and "
           "rstd are f32 of dims [0, axis) of x.",
    .operandNames = layerNormGradNames,
    .traits = pure,
    .makeAttributes = makeAttributes<NormAttributes>,
    .infer = inferNormGrad<layerNormGradInfo>,
    .evaluate = evaluateLayerNormGrad,
    .vjp = notDifferentiable,
    .cost = normCost<16>,
};

const OpInfo rmsNormInfo = {
    .name = "rms_norm",
    .doc = "y = x * rstd * gamma with rstd = 1 / sqrt(mean of x * x + epsilon) over dims [axis, rank) of x (Zhang and "
           "Sennrich, arXiv 1910.07467); rstd is kept for the derivative only. (C1) to (C5) as layer_norm, without "
           "beta.",
    .operandNames = rmsNormNames,
    .traits = pure,
    .makeAttributes = makeAttributes<NormAttributes>,
    .infer = inferNorm<rmsNormInfo>,
    .evaluate = evaluateRmsNorm,
    .vjp = differentiateNorm<Op::rmsNormGrad>,
    .cost = normCost<5>,
};

const OpInfo rmsNormGradInfo = {
    .name = "rms_norm_grad",
    .doc = "The cotangents dx and dgamma of rms_norm. (C1) to (C4) as layer_norm. (C6) dy and x have one type. (C7) "
           "rstd is f32 of dims [0, axis) of x.",
    .operandNames = rmsNormGradNames,
    .traits = pure,
    .makeAttributes = makeAttributes<NormAttributes>,
    .infer = inferNormGrad<rmsNormGradInfo>,
    .evaluate = evaluateRmsNormGrad,
    .vjp = notDifferentiable,
    .cost = normCost<10>,
};

} // namespace fsdpc
