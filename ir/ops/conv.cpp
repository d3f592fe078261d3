// Convolution and its two derivatives. The op is linear in x and in w, so all three iterate over the same
// multiplications x * w. Each accumulates into a different one of x, w and y.
#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"
#include "ir/ops/window.h"

namespace fsdpc {

namespace {

constexpr llvm::StringRef convolutionNames[] = {"x", "w", "bias?"};
constexpr llvm::StringRef gradInputNames[] = {"dy", "w"};
constexpr llvm::StringRef gradWeightNames[] = {"x", "dy"};

Window windowOf(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> w, const ConvolutionAttributes &attributes) {
  return {x.drop_front(2),      w.drop_front(2),       attributes.strides,
          attributes.dilations, attributes.padsBefore, attributes.padsAfter};
}

/// [N, M, spatial...] of the convolution of x with w.
llvm::Expected<Shape> resultShape(const OpInfo &info, llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> w,
                                  const ConvolutionAttributes &attributes) {
  if (x.size() != w.size() || x.size() < 3)
    return constraintError(info.name, "C1", "x and w have equal rank 3 to 5: " + shapeText(x) + " and " + shapeText(w));
  llvm::Expected<Shape> spatial = windowOutput(info.name, windowOf(x, w, attributes));
  if (!spatial)
    return spatial.takeError();
  int64_t groups = attributes.groups;
  if (groups < 1 || x[1] % groups != 0 || w[0] % groups != 0 || w[1] != x[1] / groups)
    return constraintError(info.name, "C4",
                           llvm::Twine(groups) + " groups divide the channels of x " + shapeText(x) + " and of w " +
                               shapeText(w) + ", and w has the input channels of one group");
  Shape result = {x[0], w[0]};
  result.append(spatial->begin(), spatial->end());
  return result;
}

llvm::Error checkOneFloat(const OpInfo &info, llvm::ArrayRef<Type> operands) {
  for (const Type &type : operands)
    if (!isFloat(type.dtype()) || type.dtype() != operands[0].dtype())
      return constraintError(info.name, "C6",
                             "operands have one float dtype: " + toString(operands[0]) + " and " + toString(type));
  return llvm::Error::success();
}

llvm::Error inferConvolution(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                             llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = convolutionInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  const auto &a = attributesOf<ConvolutionAttributes>(attributes);
  llvm::Expected<Shape> shape = resultShape(info, operands[0].shape(), operands[1].shape(), a);
  if (!shape)
    return shape.takeError();
  if (operands.size() == 3 && operands[2].shape() != llvm::ArrayRef<int64_t>((*shape)[1]))
    return constraintError(info.name, "C5",
                           "bias has one element per output channel, " + llvm::Twine((*shape)[1]) + ", but is " +
                               toString(operands[2]));
  if (llvm::Error error = checkOneFloat(info, operands))
    return error;
  return addResult(info, "C8", operands[0].dtype(), *shape, results);
}

/// The shape rule of the gradient ops. `x` and `w` are the shapes of the convolution that is differentiated.
llvm::Error inferGradient(const OpInfo &info, llvm::ArrayRef<Type> operands, const Type &dy, llvm::ArrayRef<int64_t> x,
                          llvm::ArrayRef<int64_t> w, const ConvolutionAttributes &attributes,
                          llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOneFloat(info, operands))
    return error;
  llvm::Expected<DType> dtype = dtypeOfSum(info, dy.dtype(), attributes.accumulateF32);
  if (!dtype)
    return dtype.takeError();
  if (llvm::Error error = addResult(info, "C8", *dtype, attributes.shape, results))
    return error;
  llvm::Expected<Shape> shape = resultShape(info, x, w, attributes);
  if (!shape)
    return shape.takeError();
  if (dy.shape() != llvm::ArrayRef<int64_t>(*shape))
    return constraintError(info.name, "C7",
                           "dy has the convolution's shape " + shapeText(*shape) + ", but is " + toString(dy));
  return llvm::Error::success();
}

llvm::Error inferGradInput(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                           llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = convolutionGradInputInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  const auto &a = attributesOf<ConvolutionAttributes>(attributes);
  return inferGradient(info, operands, operands[0], a.shape, operands[1].shape(), a, results);
}

llvm::Error inferGradWeight(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                            llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = convolutionGradWeightInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  const auto &a = attributesOf<ConvolutionAttributes>(attributes);
  return inferGradient(info, operands, operands[1], operands[0].shape(), a.shape, a, results);
}

/// Calls body(index in x, index in w, index in y) for every multiplication x * w that contributes to a y.
template <class Body>
void forEachMultiply(const Type &x, const Type &w, const Type &y, const ConvolutionAttributes &attributes, Body body) {
  const std::vector<WindowTap> taps = windowTaps(windowOf(x.shape(), w.shape(), attributes), y.shape().drop_front(2));
  const int64_t xPlane = productOf(x.shape(), 2, x.rank());
  const int64_t wPlane = productOf(w.shape(), 2, w.rank());
  const int64_t yPlane = productOf(y.shape(), 2, y.rank());
  const int64_t channels = w.dim(1);                    // of one group
  const int64_t filters = w.dim(0) / attributes.groups; // of one group
  for (int64_t n = 0; n < x.dim(0); ++n)
    for (int64_t m = 0; m < w.dim(0); ++m)
      for (int64_t c = 0; c < channels; ++c) {
        int64_t xBase = (n * x.dim(1) + m / filters * channels + c) * xPlane;
        int64_t wBase = (m * channels + c) * wPlane;
        int64_t yBase = (n * w.dim(0) + m) * yPlane;
        for (const WindowTap &tap : taps)
          body(xBase + tap.input, wBase + tap.kernel, yBase + tap.output);
      }
}

void evaluateConvolution(EvaluateContext &context) {
  const HostTensor &x = *context.operands[0];
  const HostTensor &w = *context.operands[1];
  HostTensor &y = context.results[0];
  if (context.operands.size() == 3) {
    int64_t plane = productOf(y.type.shape(), 2, y.type.rank());
    for (size_t i = 0; i < y.values.size(); ++i)
      y.values[i] = context.operands[2]->values[static_cast<int64_t>(i) / plane % y.type.dim(1)];
  }
  forEachMultiply(x.type, w.type, y.type, context.get<ConvolutionAttributes>(),
                  [&](int64_t xi, int64_t wi, int64_t yi) { y.values[yi] += x.values[xi] * w.values[wi]; });
}

void evaluateGradInput(EvaluateContext &context) {
  const HostTensor &dy = *context.operands[0];
  const HostTensor &w = *context.operands[1];
  HostTensor &dx = context.results[0];
  forEachMultiply(dx.type, w.type, dy.type, context.get<ConvolutionAttributes>(),
                  [&](int64_t xi, int64_t wi, int64_t yi) { dx.values[xi] += dy.values[yi] * w.values[wi]; });
}

void evaluateGradWeight(EvaluateContext &context) {
  const HostTensor &x = *context.operands[0];
  const HostTensor &dy = *context.operands[1];
  HostTensor &dw = context.results[0];
  forEachMultiply(x.type, dw.type, dy.type, context.get<ConvolutionAttributes>(),
                  [&](int64_t xi, int64_t wi, int64_t yi) { dw.values[wi] += dy.values[yi] * x.values[xi]; });
}

void differentiateConvolution(VjpContext &context) {
  Value *dy = context.resultCotangents[0];
  if (!dy)
    return;
  Value *x = context.node.operand(0);
  Value *w = context.node.operand(1);
  auto attributes = context.node.get<ConvolutionAttributes>();
  if (context.needed[0]) {
    attributes.shape = Shape(x->type().shape());
    context.operandCotangents[0] = context.builder.create(Op::convolutionGradInput, {dy, w}, attributes)->result();
  }
  if (context.needed[1]) {
    attributes.shape = Shape(w->type().shape());
    context.operandCotangents[1] = context.builder.create(Op::convolutionGradWeight, {x, dy}, attributes)->result();
  }
  if (context.node.operandCount() == 3 && context.needed[2]) {
    Shape axes;
    for (int64_t axis = 0; axis < dy->type().rank(); ++axis)
      if (axis != 1)
        axes.push_back(axis);
    context.operandCotangents[2] = context.builder.reduceSum(dy, axes, false);
  }
}

/// The op is a transposed convolution, linear in dy and in w.
void differentiateGradInput(VjpContext &context) {
  Value *g = context.resultCotangents[0];
  if (!g)
    return;
  Value *dy = context.node.operand(0);
  Value *w = context.node.operand(1);
  auto attributes = context.node.get<ConvolutionAttributes>();
  if (context.needed[1]) {
    attributes.shape = Shape(w->type().shape());
    context.operandCotangents[1] = context.builder.create(Op::convolutionGradWeight, {g, dy}, attributes)->result();
  }
  if (context.needed[0]) {
    attributes.shape = {};
    context.operandCotangents[0] = context.builder.create(Op::convolution, {g, w}, attributes)->result();
  }
}

/// One multiplication and one addition per tap, including taps in the padding.
Cost costOfConvolution(const Node &node, const Type &w, const Type &y) {
  double productsPerOutput = static_cast<double>(productOf(w.shape(), 1, w.rank()));
  return costWithFlops(node, 2 * productsPerOutput * static_cast<double>(y.elements()));
}

/// Only the sample axis of x keeps the batch. Channels and positions are summed over or mixed by the window.
int64_t axisOfConvolution(const Node &, unsigned operand, int64_t axis) { return operand == 0 && axis == 0 ? 0 : -1; }

} // namespace

const OpInfo convolutionInfo = {
    .name = "convolution",
    .doc = "y[n,m,o] = bias[m] + sum over c, k of x[n, c of m's group, o * stride + k * dilation - pad_before] * "
           "w[m,c,k] for x "
           "[N,C,spatial...], w [M,C/groups,kernel...]. (C1) x and w have equal rank 3 to 5; strides, dilations and "
           "pads have one "
           "entry per spatial axis. (C2) kernel, strides and dilations are at least 1, pads at least 0, all below "
           "2^31. (C3) the "
           "window fits into the padded input. (C4) groups divide C and M, and w has C/groups input channels. (C5) "
           "bias is [M]. "
           "(C6) operands have one float dtype. (C8) the result fits.",
    .operandNames = convolutionNames,
    .traits = pure,
    .makeAttributes = makeAttributes<ConvolutionAttributes>,
    .infer = inferConvolution,
    .evaluate = evaluateConvolution,
    .vjp = differentiateConvolution,
    .cost = [](const Node &node) { return costOfConvolution(node, node.operand(1)->type(), node.result()->type()); },
    .computeClass = ComputeClass::convolution,
    .stages = everyStage,
    .batch = batchByAxis<axisOfConvolution>,
};

const OpInfo convolutionGradInputInfo = {
    .name = "convolution_grad_input",
    .doc = "The cotangent of a convolution's x, of `shape`, from that of its y. (C1) to (C6) as convolution; (C7) dy "
           "has the shape "
           "of the convolution of `shape` with w. (C8) the result fits.",
    .operandNames = gradInputNames,
    .traits = pure,
    .makeAttributes = makeAttributes<ConvolutionAttributes>,
    .infer = inferGradInput,
    .evaluate = evaluateGradInput,
    .vjp = differentiateGradInput,
    .cost = [](const Node &node) { return costOfConvolution(node, node.operand(1)->type(), node.operand(0)->type()); },
    .computeClass = ComputeClass::convolution,
    .stages = everyStage,
    .batch = losesBatch,
};

const OpInfo convolutionGradWeightInfo = {
    .name = "convolution_grad_weight",
    .doc = "The cotangent of a convolution's w, of `shape`, from that of its y. (C1) to (C6) as convolution; (C7) dy "
           "has the shape "
           "of the convolution of x with `shape`. (C8) the result fits.",
    .operandNames = gradWeightNames,
    .traits = pure,
    .makeAttributes = makeAttributes<ConvolutionAttributes>,
    .infer = inferGradWeight,
    .evaluate = evaluateGradWeight,
    .vjp = notDifferentiable,
    .cost = [](const Node &node) { return costOfConvolution(node, node.result()->type(), node.operand(1)->type()); },
    .computeClass = ComputeClass::convolution,
    .stages = everyStage,
    .batch = losesBatch,
    .firstSum = 0,
    .accumulateInF32 = accumulateInF32<ConvolutionAttributes>,
};

} // namespace fsdpc
