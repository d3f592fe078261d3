// Pooling and its derivatives.
#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"
#include "ir/ops/window.h"
#include <cmath>
#include <limits>

namespace fsdpc {

namespace {

constexpr llvm::StringRef maxPoolGradNames[] = {"dy", "indices"};
constexpr llvm::StringRef averagePoolGradNames[] = {"dy"};

Window windowOf(llvm::ArrayRef<int64_t> x, const PoolAttributes &attributes) {
  return {x.drop_front(2),      attributes.kernel,     attributes.strides,
          attributes.dilations, attributes.padsBefore, attributes.padsAfter};
}

/// [N, C, spatial...] of the pooled x.
llvm::Expected<Shape> pooledShape(const OpInfo &info, llvm::ArrayRef<int64_t> x, const PoolAttributes &attributes) {
  if (x.size() < 3)
    return constraintError(info.name, "C1", "x has rank 3 to 5 but is " + shapeText(x));
  Window window = windowOf(x, attributes);
  llvm::Expected<Shape> spatial = windowOutput(info.name, window);
  if (!spatial)
    return spatial.takeError();
  if (!everyWindowTouchesInput(window, *spatial))
    return constraintError(info.name, "C4", "a window is entirely in the padding of x " + shapeText(x));
  Shape result = {x[0], x[1]};
  result.append(spatial->begin(), spatial->end());
  return result;
}

llvm::Error inferMaxPool(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                         llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = maxPoolInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  if (llvm::Error error = checkFloat(info, "C5", operands, 0))
    return error;
  llvm::Expected<Shape> shape = pooledShape(info, operands[0].shape(), attributesOf<PoolAttributes>(attributes));
  if (!shape)
    return shape.takeError();
  std::optional<int64_t> plane = checkedElements(operands[0].shape().drop_front(2));
  if (!plane || *plane > std::numeric_limits<int32_t>::max())
    return constraintError(info.name, "C6",
                           "a spatial plane of x has fewer than 2^31 elements: " + toString(operands[0]));
  if (llvm::Error error = addResult(info, "C8", operands[0].dtype(), *shape, results))
    return error;
  return addResult(info, "C8", DType::i32, *shape, results);
}

llvm::Error inferAveragePool(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                             llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = averagePoolInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  if (llvm::Error error = checkFloat(info, "C5", operands, 0))
    return error;
  llvm::Expected<Shape> shape = pooledShape(info, operands[0].shape(), attributesOf<PoolAttributes>(attributes));
  if (!shape)
    return shape.takeError();
  return addResult(info, "C8", operands[0].dtype(), *shape, results);
}

/// The shape rule of the gradient ops: dx has `shape`, and every operand has the shape that pooling gives for it.
llvm::Error inferGradient(const OpInfo &info, llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                          llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  if (llvm::Error error = checkFloat(info, "C5", operands, 0))
    return error;
  const auto &a = attributesOf<PoolAttributes>(attributes);
  if (llvm::Error error = addResult(info, "C8", operands[0].dtype(), a.shape, results))
    return error;
  llvm::Expected<Shape> shape = pooledShape(info, a.shape, a);
  if (!shape)
    return shape.takeError();
  for (const Type &type : operands)
    if (type.shape() != llvm::ArrayRef<int64_t>(*shape))
      return constraintError(info.name, "C7",
                             "operands have the pooled shape " + shapeText(*shape) + ", but one is " + toString(type));
  return llvm::Error::success();
}

llvm::Error inferMaxPoolGrad(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                             llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = inferGradient(maxPoolGradInfo, operands, attributes, results))
    return error;
  if (operands[1].dtype() != DType::i32)
    return constraintError(maxPoolGradInfo.name, "C6", "indices are i32 but are " + toString(operands[1]));
  return llvm::Error::success();
}

llvm::Error inferAveragePoolGrad(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                                 llvm::SmallVectorImpl<Type> &results) {
  return inferGradient(averagePoolGradInfo, operands, attributes, results);
}

int64_t planeOf(const Type &type) { return productOf(type.shape(), 2, type.rank()); }
int64_t planesOf(const Type &type) { return productOf(type.shape(), 0, 2); }

void evaluateMaxPool(EvaluateContext &context) {
  const HostTensor &x = *context.operands[0];
  HostTensor &y = context.results[0];
  HostTensor &indices = context.results[1];
  const std::vector<WindowTap> taps =
      windowTaps(windowOf(x.type.shape(), context.get<PoolAttributes>()), y.type.shape().drop_front(2));
  for (int64_t plane = 0; plane < planesOf(y.type); ++plane) {
    const double *from = x.values.data() + plane * planeOf(x.type);
    int64_t previous = -1;
    for (const WindowTap &tap : taps) {
      int64_t to = plane * planeOf(y.type) + tap.output;
      bool first = tap.output != previous;
      previous = tap.output;
      // A NaN wins over every number, and the first NaN wins over later ones, as in the frameworks.
      bool wins = from[tap.input] > y.values[to] || (std::isnan(from[tap.input]) && !std::isnan(y.values[to]));
      if (!first && !wins)
        continue;
      y.values[to] = from[tap.input];
      indices.values[to] = static_cast<double>(tap.input);
    }
  }
}

void evaluateMaxPoolGrad(EvaluateContext &context) {
  const HostTensor &dy = *context.operands[0];
  const HostTensor &indices = *context.operands[1];
  HostTensor &dx = context.results[0];
  for (size_t i = 0; i < dy.values.size(); ++i) {
    auto plane = static_cast<int64_t>(i) / planeOf(dy.type);
    auto index = static_cast<int64_t>(indices.values[i]);
    assert(index >= 0 && index < planeOf(dx.type) && "indices are those of max_pool");
    dx.values[plane * planeOf(dx.type) + index] += dy.values[i];
  }
}

/// The divisor of each output element.
std::vector<double> divisors(const std::vector<WindowTap> &taps, const PoolAttributes &attributes, int64_t outputs) {
  if (attributes.countIncludePad)
    return std::vector<double>(outputs, static_cast<double>(*checkedElements(attributes.kernel)));
  std::vector<double> counts(outputs, 0);
  for (const WindowTap &tap : taps)
    counts[tap.output] += 1;
  return counts;
}

/// Calls body(index in x, index in y, weight of that x in that y).
template <class Body>
void forEachShare(const Type &x, const Type &y, const PoolAttributes &attributes, Body body) {
  const std::vector<WindowTap> taps = windowTaps(windowOf(x.shape(), attributes), y.shape().drop_front(2));
  const std::vector<double> counts = divisors(taps, attributes, planeOf(y));
  for (int64_t plane = 0; plane < planesOf(y); ++plane)
    for (const WindowTap &tap : taps)
      body(plane * planeOf(x) + tap.input, plane * planeOf(y) + tap.output, 1 / counts[tap.output]);
}

void evaluateAveragePool(EvaluateContext &context) {
  const HostTensor &x = *context.operands[0];
  HostTensor &y = context.results[0];
  forEachShare(x.type, y.type, context.get<PoolAttributes>(),
               [&](int64_t xi, int64_t yi, double weight) { y.values[yi] += weight * x.values[xi]; });
}

void evaluateAveragePoolGrad(EvaluateContext &context) {
  const HostTensor &dy = *context.operands[0];
  HostTensor &dx = context.results[0];
  forEachShare(dx.type, dy.type, context.get<PoolAttributes>(),
               [&](int64_t xi, int64_t yi, double weight) { dx.values[xi] += weight * dy.values[yi]; });
}

PoolAttributes gradientAttributes(const Node &node) {
  auto attributes = node.get<PoolAttributes>();
  attributes.shape = Shape(node.operand(0)->type().shape());
  return attributes;
}

void differentiateMaxPool(VjpContext &context) {
  if (Value *dy = context.resultCotangents[0]; dy && context.needed[0])
    context.operandCotangents[0] =
        context.builder.create(Op::maxPoolGrad, {dy, context.node.result(1)}, gradientAttributes(context.node))
            ->result();
}

void differentiateAveragePool(VjpContext &context) {
  if (Value *dy = context.resultCotangents[0]; dy && context.needed[0])
    context.operandCotangents[0] =
        context.builder.create(Op::averagePoolGrad, {dy}, gradientAttributes(context.node))->result();
}

/// One comparison or addition per window element.
Cost costPerWindow(const Node &node, const Type &y) {
  auto window = static_cast<double>(*checkedElements(node.get<PoolAttributes>().kernel));
  return costWithFlops(node, window * static_cast<double>(y.elements()));
}

bool poolsAlong(const Node &, int64_t axis) { return axis >= 2; }

} // namespace

const OpInfo maxPoolInfo = {
    .name = "max_pool",
    .doc = "y = maximum over each window of x [N,C,spatial...], indices = its flat index in the spatial plane of x; "
           "the first maximum "
           "wins, padding never, NaN always. (C1) x has rank 3 to 5; kernel, strides, dilations and pads have one "
           "entry per spatial "
           "axis. (C2) kernel, strides and dilations are at least 1, pads at least 0, all below 2^31. (C3) the window "
           "fits into the "
           "padded input. (C4) every window holds an element of x. (C5) x is float. (C6) a spatial plane has fewer "
           "than 2^31 "
           "elements. (C8) the results fit.",
    .operandNames = namesX,
    .traits = pure,
    .makeAttributes = makeAttributes<PoolAttributes>,
    .infer = inferMaxPool,
    .evaluate = evaluateMaxPool,
    .vjp = differentiateMaxPool,
    .cost = [](const Node &node) { return costPerWindow(node, node.result()->type()); },
    .computeClass = ComputeClass::reduce,
    .stages = everyStage,
    .batch = batchUnlessMixed<poolsAlong>,
};

const OpInfo maxPoolGradInfo = {
    .name = "max_pool_grad",
    .doc = "The cotangent of max_pool's x, of `shape`: every dy goes to the element at its index. (C1) to (C5) as "
           "max_pool for "
           "`shape`. (C6) indices are i32. (C7) dy and indices have the shape of the pooled `shape`. (C8) the result "
           "fits.",
    .operandNames = maxPoolGradNames,
    .traits = pure,
    .makeAttributes = makeAttributes<PoolAttributes>,
    .infer = inferMaxPoolGrad,
    .evaluate = evaluateMaxPoolGrad,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::reduce,
    .stages = everyStage,
    .batch = losesBatch,
};

const OpInfo averagePoolInfo = {
    .name = "average_pool",
    .doc = "y = sum over each window of x [N,C,spatial...] / elements of the window, those in the padding counted only "
           "with "
           "count_include_pad. (C1) to (C5) as max_pool. (C8) the result fits.",
    .operandNames = namesX,
    .traits = pure,
    .makeAttributes = makeAttributes<PoolAttributes>,
    .infer = inferAveragePool,
    .evaluate = evaluateAveragePool,
    .vjp = differentiateAveragePool,
    .cost = [](const Node &node) { return costPerWindow(node, node.result()->type()); },
    .computeClass = ComputeClass::reduce,
    .stages = everyStage,
    .batch = batchUnlessMixed<poolsAlong>,
};

const OpInfo averagePoolGradInfo = {
    .name = "average_pool_grad",
    .doc = "The cotangent of average_pool's x, of `shape`: every dy is shared out over its window. (C1) to (C5) as "
           "max_pool for "
           "`shape`. (C7) dy has the shape of the pooled `shape`. (C8) the result fits.",
    .operandNames = averagePoolGradNames,
    .traits = pure,
    .makeAttributes = makeAttributes<PoolAttributes>,
    .infer = inferAveragePoolGrad,
    .evaluate = evaluateAveragePoolGrad,
    .vjp = notDifferentiable,
    .cost = [](const Node &node) { return costPerWindow(node, node.operand(0)->type()); },
    .computeClass = ComputeClass::reduce,
    .stages = everyStage,
    .batch = losesBatch,
};

} // namespace fsdpc
