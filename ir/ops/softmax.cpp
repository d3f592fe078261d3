// softmax, log_softmax and their derivatives.
#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"
#include <cmath>
#include <limits>

namespace fsdpc {

namespace {

constexpr llvm::StringRef gradNames[] = {"y", "dy"};

llvm::Error inferForward(const OpInfo &info, llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                         llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  if (llvm::Error error = checkAxis(info, "C1", attributesOf<AxisAttributes>(attributes).axis, operands[0].rank()))
    return error;
  if (llvm::Error error = checkFloat(info, "C2", operands, 0))
    return error;
  results.push_back(operands[0]);
  return llvm::Error::success();
}

llvm::Error inferGradient(const OpInfo &info, llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                          llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = inferForward(info, operands, attributes, results))
    return error;
  return checkSame(info, "C3", operands, 0, 1);
}

llvm::Error inferSoftmax(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                         llvm::SmallVectorImpl<Type> &results) {
  return inferForward(softmaxInfo, operands, attributes, results);
}
llvm::Error inferLogSoftmax(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                            llvm::SmallVectorImpl<Type> &results) {
  return inferForward(logSoftmaxInfo, operands, attributes, results);
}
llvm::Error inferSoftmaxGrad(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                             llvm::SmallVectorImpl<Type> &results) {
  return inferGradient(softmaxGradInfo, operands, attributes, results);
}
llvm::Error inferLogSoftmaxGrad(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                                llvm::SmallVectorImpl<Type> &results) {
  return inferGradient(logSoftmaxGradInfo, operands, attributes, results);
}

/// The elements along the axis at one point of the other axes: begin + i * stride for i < count.
struct Line {
  int64_t begin, count, stride;
};

template <class Body>
void forEachLine(const Type &type, int64_t axis, Body body) {
  const int64_t stride = productOf(type.shape(), axis + 1, type.rank());
  const int64_t outer = productOf(type.shape(), 0, axis);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < stride; ++i)
      body(Line{o * type.dim(axis) * stride + i, type.dim(axis), stride});
}

/// The largest element, and log(sum of exp(x - largest)), without overflow. They are returned separately, because
/// adding the logarithm to a large element would lose it. If all elements are the lowest float, softmax must be 1 /
/// count.
std::pair<double, double> logSumExp(const std::vector<double> &values, const Line &line) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < line.count; ++i)
    largest = std::max(largest, values[line.begin + i * line.stride]);
  double sum = 0;
  for (int64_t i = 0; i < line.count; ++i)
    sum += std::exp(values[line.begin + i * line.stride] - largest);
  return {largest, std::log(sum)};
}

/// Evaluates both ops: softmax = exp(log_softmax).
template <bool logarithmic>
void evaluateForward(EvaluateContext &context) {
  const HostTensor &x = *context.operands[0];
  forEachLine(x.type, context.get<AxisAttributes>().axis, [&](const Line &line) {
    const auto [largest, logOfSum] = logSumExp(x.values, line);
    for (int64_t i = 0; i < line.count; ++i) {
      int64_t at = line.begin + i * line.stride;
      double logarithm = x.values[at] - largest - logOfSum;
      context.results[0].values[at] = logarithmic ? logarithm : std::exp(logarithm);
    }
  });
}

void evaluateSoftmaxGrad(EvaluateContext &context) {
  const std::vector<double> &y = context.operands[0]->values;
  const std::vector<double> &dy = context.operands[1]->values;
  forEachLine(context.operands[0]->type, context.get<AxisAttributes>().axis, [&](const Line &line) {
    double dot = 0;
    for (int64_t i = 0; i < line.count; ++i)
      dot += y[line.begin + i * line.stride] * dy[line.begin + i * line.stride];
    for (int64_t i = 0; i < line.count; ++i) {
      int64_t at = line.begin + i * line.stride;
      context.results[0].values[at] = y[at] * (dy[at] - dot);
    }
  });
}

void evaluateLogSoftmaxGrad(EvaluateContext &context) {
  const std::vector<double> &y = context.operands[0]->values;
  const std::vector<double> &dy = context.operands[1]->values;
  forEachLine(context.operands[0]->type, context.get<AxisAttributes>().axis, [&](const Line &line) {
    double sum = 0;
    for (int64_t i = 0; i < line.count; ++i)
      sum += dy[line.begin + i * line.stride];
    for (int64_t i = 0; i < line.count; ++i) {
      int64_t at = line.begin + i * line.stride;
      context.results[0].values[at] = dy[at] - std::exp(y[at]) * sum;
    }
  });
}

void differentiate(VjpContext &context, Op gradient) {
  if (Value *dy = context.resultCotangents[0]; dy && context.needed[0])
    context.operandCotangents[0] =
        context.builder.create(gradient, {context.node.result(), dy}, context.node.get<AxisAttributes>())->result();
}

/// Maximum, subtraction, exponential, sum and scaling of each element.
Cost costOfLines(const Node &node) {
  return costWithFlops(node, 5 * static_cast<double>(node.result()->type().elements()));
}

bool normalizesAlong(const Node &node, int64_t axis) { return axis == node.get<AxisAttributes>().axis; }

} // namespace

const OpInfo softmaxInfo = {
    .name = "softmax",
    .doc = "exp(x) / sum of exp(x) along `axis`. (C1) the axis is one of x. (C2) x is float.",
    .operandNames = namesX,
    .traits = pure,
    .makeAttributes = makeAttributes<AxisAttributes>,
    .infer = inferSoftmax,
    .evaluate = evaluateForward<false>,
    .vjp = [](VjpContext &context) { differentiate(context, Op::softmaxGrad); },
    .cost = costOfLines,
    .computeClass = ComputeClass::softmax,
    .stages = everyStage,
    .batch = batchUnlessMixed<normalizesAlong>,
};

const OpInfo softmaxGradInfo = {
    .name = "softmax_grad",
    .doc = "y * (dy - sum of y * dy along `axis`): the cotangent of softmax's x, from its result y. (C1), (C2) as "
           "softmax. (C3) y and "
           "dy have one type.",
    .operandNames = gradNames,
    .traits = pure,
    .makeAttributes = makeAttributes<AxisAttributes>,
    .infer = inferSoftmaxGrad,
    .evaluate = evaluateSoftmaxGrad,
    .vjp = notDifferentiable,
    .cost = costOfLines,
    .computeClass = ComputeClass::softmax,
    .stages = everyStage,
    .batch = losesBatch,
};

const OpInfo logSoftmaxInfo = {
    .name = "log_softmax",
    .doc = "x - log(sum of exp(x)) along `axis`. (C1) the axis is one of x. (C2) x is float.",
    .operandNames = namesX,
    .traits = pure,
    .makeAttributes = makeAttributes<AxisAttributes>,
    .infer = inferLogSoftmax,
    .evaluate = evaluateForward<true>,
    .vjp = [](VjpContext &context) { differentiate(context, Op::logSoftmaxGrad); },
    .cost = costOfLines,
    .computeClass = ComputeClass::softmax,
    .stages = everyStage,
    .batch = batchUnlessMixed<normalizesAlong>,
};

const OpInfo logSoftmaxGradInfo = {
    .name = "log_softmax_grad",
    .doc = "dy - exp(y) * sum of dy along `axis`: the cotangent of log_softmax's x, from its result y. (C1), (C2) as "
           "log_softmax. "
           "(C3) y and dy have one type.",
    .operandNames = gradNames,
    .traits = pure,
    .makeAttributes = makeAttributes<AxisAttributes>,
    .infer = inferLogSoftmaxGrad,
    .evaluate = evaluateLogSoftmaxGrad,
    .vjp = notDifferentiable,
    .cost = costOfLines,
    .computeClass = ComputeClass::softmax,
    .stages = everyStage,
    .batch = losesBatch,
};

} // namespace fsdpc
