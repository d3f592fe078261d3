// layer_norm, rms_norm and their derivatives.
#include "ir/ops/norm.h"

#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"
#include <cmath>

namespace fsdpc {

namespace {

constexpr llvm::StringRef layerNormNames[] = {"x", "gamma", "beta", "residual?"};
constexpr llvm::StringRef layerNormGradNames[] = {"dy", "x", "gamma", "mean", "rstd", "addend?"};
constexpr llvm::StringRef rmsNormNames[] = {"x", "gamma", "residual?"};
constexpr llvm::StringRef rmsNormGradNames[] = {"dy", "x", "gamma", "rstd", "addend?"};

/// Checks x, gamma and (if present) beta, for all ops of this file.
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

/// One value per row.
Type statisticOf(const Type &x, const NormAttributes &attributes) {
  return Type(DType::f32, x.shape().take_front(attributes.axis));
}

/// Checks that the residual or addend, if present, has the type of x.
llvm::Error checkAdded(const OpInfo &info, llvm::ArrayRef<Type> operands, unsigned x) {
  bool isAdded = operands.size() > info.minOperands();
  return isAdded ? checkSame(info, "C8", operands, info.minOperands(), x) : llvm::Error::success();
}

/// Results: y, then as many statistics as there are scales (mean and rstd for layer_norm, rstd for rms_norm), then the
/// sum with the residual, if present.
template <const OpInfo &info>
llvm::Error inferNorm(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                      llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  const auto &a = attributesOf<NormAttributes>(attributes);
  const Type &x = operands[0];
  const unsigned scales = info.minOperands() - 1;
  if (llvm::Error error = checkNormalised(info, x, operands.slice(1, scales), a))
    return error;
  if (a.epsilon < 0)
    return constraintError(info.name, "C5", "epsilon is not negative but is " + doubleText(a.epsilon));
  if (llvm::Error error = checkAdded(info, operands, 0))
    return error;
  results.push_back(x);
  results.append(scales, statisticOf(x, a));
  results.append(operands.size() - info.minOperands(), x);
  return llvm::Error::success();
}

/// Operands: dy, x, gamma and the statistics. Results: dx and a cotangent for every scale.
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
  llvm::ArrayRef<Type> statistics = operands.slice(3, info.minOperands() - 3);
  for (const Type &statistic : statistics)
    if (statistic != statisticOf(x, a))
      return constraintError(
          info.name, "C7", "one number per row is " + toString(statisticOf(x, a)) + ", but is " + toString(statistic));
  if (llvm::Error error = checkAdded(info, operands, 1))
    return error;
  llvm::Expected<DType> dtype = dtypeOfSum(info, operands[2].dtype(), a.accumulateF32);
  if (!dtype)
    return dtype.takeError();
  results.push_back(x);
  results.append(statistics.size(), operands[2].withDType(*dtype));
  return llvm::Error::success();
}

/// The rows, each normalized separately, and their element count.
struct Rows {
  int64_t rows, count;

  Rows(const Type &x, int64_t axis)
      : rows(productOf(x.shape(), 0, axis)), count(productOf(x.shape(), axis, x.rank())) {}
};

/// The normalized tensor: x, or its sum with operand `residual`, which is the last result.
const HostTensor &normalisedOf(EvaluateContext &context, unsigned residual) {
  const HostTensor &x = *context.operands[0];
  if (context.operands.size() <= residual)
    return x;
  HostTensor &sum = context.results.back();
  for (size_t i = 0; i < sum.values.size(); ++i)
    sum.values[i] = x.values[i] + context.operands[residual]->values[i];
  roundToDType(sum);
  return sum;
}

/// Adds operand `addend` to dx, like a separate add node.
void addToGradient(EvaluateContext &context, unsigned addend) {
  if (context.operands.size() <= addend)
    return;
  HostTensor &dx = context.results[0];
  roundToDType(dx);
  for (size_t i = 0; i < dx.values.size(); ++i)
    dx.values[i] += context.operands[addend]->values[i];
}

void evaluateLayerNorm(EvaluateContext &context) {
  const auto &attributes = context.get<NormAttributes>();
  const HostTensor &x = normalisedOf(context, 3);
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
  addToGradient(context, 5);
}

void evaluateRmsNorm(EvaluateContext &context) {
  const auto &attributes = context.get<NormAttributes>();
  const HostTensor &x = normalisedOf(context, 2);
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
  addToGradient(context, 4);
}

/// The gradient op takes dy, x, gamma and the statistics, which are the results after y. Residuals are fused only after
/// autodiff (V12), so a sum never has a cotangent.
template <Op gradientOp>
void differentiateNorm(VjpContext &context) {
  assert(!addedOperand(context.node) && "residuals are fused after differentiation");
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

/// Costs `operations` per element of the first result, and one more for an added operand.
template <int operations>
Cost normCost(const Node &node) {
  int perElement = operations + (addedOperand(node) ? 1 : 0);
  return costWithFlops(node, perElement * static_cast<double>(node.result()->type().elements()));
}

bool isNorm(const Node &node) { return node.op() == Op::layerNorm || node.op() == Op::rmsNorm; }
bool isNormGrad(const Node &node) { return node.op() == Op::layerNormGrad || node.op() == Op::rmsNormGrad; }

/// The axes of x before the normalized ones keep the batch.
int64_t axisOfNorm(const Node &node, unsigned operand, int64_t axis) {
  return operand == 0 && axis < node.get<NormAttributes>().axis ? axis : -1;
}

} // namespace

Value *addedOperand(const Node &node) {
  bool adds = (isNorm(node) || isNormGrad(node)) && node.operandCount() > infoOf(node).minOperands();
  return adds ? node.operand(node.operandCount() - 1) : nullptr;
}

bool isRowWrittenOver(const Node &node, unsigned result, unsigned operand) {
  if (!addedOperand(node))
    return false;
  bool isAdded = operand + 1 == node.operandCount();
  if (isNormGrad(node))
    return result == 0 && isAdded;
  return (result == 0 || result + 1 == node.resultCount()) && (operand == 0 || isAdded);
}

const OpInfo layerNormInfo = {
    .name = "layer_norm",
    .doc =
        "y = (x - mean) * rstd * gamma + beta with mean and rstd = 1 / sqrt(population variance + epsilon) over "
        "dims [axis, rank) "
        "of x; mean and rstd are kept for the derivative only. (C1) the axis is one of x. (C2) the normalised dims "
        "are not empty. "
        "(C3) gamma and beta have these dims and the dtype of x. (C4) x is float. (C5) epsilon is not negative. With "
        "a residual, x + residual, rounded to the type of x, stands for x and is one more result; not before the "
        "sharded stage, so it has no derivative. (C8) the residual has the type of x.",
    .operandNames = layerNormNames,
    .traits = pure,
    .makeAttributes = makeAttributes<NormAttributes>,
    .infer = inferNorm<layerNormInfo>,
    .evaluate = evaluateLayerNorm,
    .vjp = differentiateNorm<Op::layerNormGrad>,
    .cost = normCost<8>,
    .computeClass = ComputeClass::normalization,
    .stages = everyStage,
    .batch = batchByAxis<axisOfNorm>,
};

const OpInfo layerNormGradInfo = {
    .name = "layer_norm_grad",
    .doc = "The cotangents dx, dgamma, dbeta of layer_norm. (C1) to (C4) as layer_norm. (C6) dy and x have one type. "
           "(C7) mean and "
           "rstd are f32 of dims [0, axis) of x. With an addend, dx is what it was, rounded, plus addend; not before "
           "the sharded stage. (C8) the addend has the type of x.",
    .operandNames = layerNormGradNames,
    .traits = pure,
    .makeAttributes = makeAttributes<NormAttributes>,
    .infer = inferNormGrad<layerNormGradInfo>,
    .evaluate = evaluateLayerNormGrad,
    .vjp = notDifferentiable,
    .cost = normCost<16>,
    .computeClass = ComputeClass::normalization,
    .stages = everyStage,
    .batch = losesBatch,
    .firstSum = 1,
    .accumulateInF32 = accumulateInF32<NormAttributes>,
};

const OpInfo rmsNormInfo = {
    .name = "rms_norm",
    .doc = "y = x * rstd * gamma with rstd = 1 / sqrt(mean of x * x + epsilon) over dims [axis, rank) of x (Zhang and "
           "Sennrich, arXiv 1910.07467); rstd is kept for the derivative only. (C1) to (C5) as layer_norm, without "
           "beta. (C8) as layer_norm: a residual.",
    .operandNames = rmsNormNames,
    .traits = pure,
    .makeAttributes = makeAttributes<NormAttributes>,
    .infer = inferNorm<rmsNormInfo>,
    .evaluate = evaluateRmsNorm,
    .vjp = differentiateNorm<Op::rmsNormGrad>,
    .cost = normCost<5>,
    .computeClass = ComputeClass::normalization,
    .stages = everyStage,
    .batch = batchByAxis<axisOfNorm>,
};

const OpInfo rmsNormGradInfo = {
    .name = "rms_norm_grad",
    .doc = "The cotangents dx and dgamma of rms_norm. (C1) to (C4) as layer_norm. (C6) dy and x have one type. (C7) "
           "rstd is f32 of dims [0, axis) of x. (C8) as layer_norm_grad: an addend.",
    .operandNames = rmsNormGradNames,
    .traits = pure,
    .makeAttributes = makeAttributes<NormAttributes>,
    .infer = inferNormGrad<rmsNormGradInfo>,
    .evaluate = evaluateRmsNormGrad,
    .vjp = notDifferentiable,
    .cost = normCost<10>,
    .computeClass = ComputeClass::normalization,
    .stages = everyStage,
    .batch = losesBatch,
    .firstSum = 1,
    .accumulateInF32 = accumulateInF32<NormAttributes>,
};

} // namespace fsdpc
