// Ops that make or move elements without computing: constant, iota, broadcast, reshape, stop_gradient,
// transpose, concat.
#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"

namespace fsdpc {

namespace {

// ---- constant, iota

llvm::Error inferConstant(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                          llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(constantInfo, operands))
    return error;
  const auto &own = attributesOf<ConstantAttributes>(attributes);
  if (llvm::Error error = addResult(constantInfo, "C1", own.value.dtype(), own.shape, results))
    return error;
  int64_t wanted = own.value.isSplat() ? 1 : results[0].elements();
  if (own.value.storedElements() == wanted)
    return llvm::Error::success();
  return constraintError("constant", "C1",
                         llvm::Twine(own.value.storedElements()) + " values for " + toString(results[0]));
}

void evaluateConstant(EvaluateContext &context) {
  const auto &own = context.get<ConstantAttributes>();
  HostTensor &result = context.results[0];
  for (size_t i = 0; i < result.values.size(); ++i)
    result.values[i] = own.value.at(static_cast<int64_t>(i));
}

llvm::Error inferIota(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                      llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(iotaInfo, operands))
    return error;
  const auto &own = attributesOf<IotaAttributes>(attributes);
  if (llvm::Error error = checkAxis(iotaInfo, "C1", own.axis, static_cast<int64_t>(own.shape.size())))
    return error;
  if (own.dtype == DType::boolean)
    return constraintError("iota", "C2", "elements must be numbers, not bool");
  return addResult(iotaInfo, "C3", own.dtype, own.shape, results);
}

void evaluateIota(EvaluateContext &context) {
  const auto &own = context.get<IotaAttributes>();
  forEachIndex(own.shape, [&](int64_t flat, llvm::ArrayRef<int64_t> coordinates) {
    context.results[0].values[flat] = own.start + own.step * static_cast<double>(coordinates[own.axis]);
  });
}

// ---- broadcast, reshape, transpose

llvm::Error inferBroadcast(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                           llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(broadcastInfo, operands))
    return error;
  llvm::ArrayRef<int64_t> shape = attributesOf<ShapeAttributes>(attributes).shape;
  if (!broadcastsTo(operands[0].shape(), shape))
    return constraintError("broadcast", "C1", toString(operands[0]) + " does not broadcast to " + shapeText(shape));
  return addResult(broadcastInfo, "C2", operands[0].dtype(), shape, results);
}

void evaluateBroadcast(EvaluateContext &context) {
  const HostTensor &x = *context.operands[0];
  llvm::ArrayRef<int64_t> shape = context.results[0].type.shape();
  Shape strides = broadcastStrides(x.type.shape(), shape);
  forEachIndex(shape, [&](int64_t flat, llvm::ArrayRef<int64_t> coordinates) {
    context.results[0].values[flat] = x.values[flatIndex(coordinates, strides)];
  });
}

void broadcastVjp(VjpContext &context) {
  if (Value *dy = context.resultCotangents[0]; dy && context.needed[0])
    context.operandCotangents[0] = context.builder.reduceToShape(dy, context.node.operand(0)->type().shape());
}

llvm::Error inferReshape(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                         llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(reshapeInfo, operands))
    return error;
  llvm::ArrayRef<int64_t> shape = attributesOf<ShapeAttributes>(attributes).shape;
  if (checkedElements(shape) != operands[0].elements())
    return constraintError("reshape", "C1", toString(operands[0]) + " has other elements than " + shapeText(shape));
  return addResult(reshapeInfo, "C1", operands[0].dtype(), shape, results);
}

/// Also for stop_gradient.
void evaluateReshape(EvaluateContext &context) { context.results[0].values = context.operands[0]->values; }

void reshapeVjp(VjpContext &context) {
  if (Value *dy = context.resultCotangents[0]; dy && context.needed[0])
    context.operandCotangents[0] = context.builder.reshape(dy, context.node.operand(0)->type().shape());
}

llvm::Error inferStopGradient(llvm::ArrayRef<Type> operands, const AttributesBase *,
                              llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(stopGradientInfo, operands))
    return error;
  return addResult(stopGradientInfo, "C0", operands[0].dtype(), operands[0].shape(), results);
}

llvm::Error inferTranspose(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                           llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(transposeInfo, operands))
    return error;
  llvm::ArrayRef<int64_t> permutation = attributesOf<TransposeAttributes>(attributes).permutation;
  const Type &x = operands[0];
  Shape shape;
  std::vector<bool> seen(x.rank(), false);
  for (int64_t axis : permutation) {
    if (axis < 0 || axis >= x.rank() || seen[axis])
      break;
    seen[axis] = true;
    shape.push_back(x.dim(axis));
  }
  if (static_cast<int64_t>(permutation.size()) != x.rank() || shape.size() != permutation.size())
    return constraintError("transpose", "C1",
                           shapeText(permutation) + " is no permutation of the axes of " + toString(x));
  return addResult(transposeInfo, "C1", x.dtype(), shape, results);
}

void evaluateTranspose(EvaluateContext &context) {
  const auto &own = context.get<TransposeAttributes>();
  const HostTensor &x = *context.operands[0];
  Shape strides, xStrides = rowMajorStrides(x.type.shape());
  for (int64_t axis : own.permutation)
    strides.push_back(xStrides[axis]);
  forEachIndex(context.results[0].type.shape(), [&](int64_t flat, llvm::ArrayRef<int64_t> coordinates) {
    context.results[0].values[flat] = x.values[flatIndex(coordinates, strides)];
  });
}

void transposeVjp(VjpContext &context) {
  Value *dy = context.resultCotangents[0];
  if (!dy || !context.needed[0])
    return;
  const auto &own = context.node.get<TransposeAttributes>();
  Shape inverse(own.permutation.size(), 0);
  for (size_t i = 0; i < inverse.size(); ++i)
    inverse[own.permutation[i]] = static_cast<int64_t>(i);
  context.operandCotangents[0] = context.builder.transpose(dy, inverse);
}

// ---- concat

llvm::Error inferConcat(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                        llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(concatInfo, operands))
    return error;
  if (operands.empty())
    return constraintError("concat", "C1", "there is nothing to join");
  int64_t axis = attributesOf<AxisAttributes>(attributes).axis;
  if (llvm::Error error = checkAxis(concatInfo, "C2", axis, operands[0].rank()))
    return error;
  Shape shape(operands[0].shape());
  shape[axis] = 0;
  for (const Type &operand : operands) {
    Shape others(operand.shape());
    if (operand.rank() == operands[0].rank())
      others[axis] = operands[0].dim(axis);
    if (others != operands[0].shape() || operand.dtype() != operands[0].dtype())
      return constraintError("concat", "C3",
                             toString(operand) + " and " + toString(operands[0]) + " differ beside axis " +
                                 llvm::Twine(axis));
    if (__builtin_add_overflow(shape[axis], operand.dim(axis), &shape[axis]))
      return constraintError("concat", "C4", "axis " + llvm::Twine(axis) + " becomes too long");
  }
  return addResult(concatInfo, "C4", operands[0].dtype(), shape, results);
}

void evaluateConcat(EvaluateContext &context) {
  int64_t axis = context.get<AxisAttributes>().axis;
  HostTensor &result = context.results[0];
  int64_t outer = productOf(result.type.shape(), 0, axis);
  int64_t row = productOf(result.type.shape(), axis, result.type.rank());
  int64_t offset = 0;
  for (const HostTensor *x : context.operands) {
    int64_t part = productOf(x->type.shape(), axis, x->type.rank());
    for (int64_t i = 0; i < outer; ++i)
      std::copy_n(x->values.begin() + i * part, part, result.values.begin() + i * row + offset);
    offset += part;
  }
}

void concatVjp(VjpContext &context) {
  Value *dy = context.resultCotangents[0];
  if (!dy)
    return;
  int64_t axis = context.node.get<AxisAttributes>().axis, offset = 0;
  for (unsigned i = 0; i < context.node.operandCount(); ++i) {
    const Type &part = context.node.operand(i)->type();
    SliceAttributes own{Shape(part.rank(), 0), Shape(part.shape()), Shape(part.rank(), 1)};
    own.starts[axis] = offset;
    offset += part.dim(axis);
    if (context.needed[i])
      context.operandCotangents[i] = context.builder.create(Op::slice, {dy}, own)->result();
  }
}

constexpr llvm::StringRef namesMany[] = {"x..."};

// ---- where the batch comes out

/// In row-major order the sample of element f is (f / stride) % samples, for every shape. Finds the axis that matches.
BatchFact batchAtStride(int64_t stride, int64_t samples, llvm::ArrayRef<int64_t> shape) {
  auto found = [samples](size_t axis, int64_t inner) {
    return BatchFact{BatchFact::Kind::found, {static_cast<int64_t>(axis), samples, inner}};
  };
  Shape strides = rowMajorStrides(shape);
  auto fits = [&](size_t axis) {
    return stride % strides[axis] == 0 && shape[axis] % (stride / strides[axis] * samples) == 0;
  };
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] == samples && strides[axis] == stride)
      return found(axis, 1);
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] != 0 && fits(axis))
      return found(axis, stride / strides[axis]);
  return samples == 1 && !shape.empty() ? found(0, std::max<int64_t>(shape[0], 1)) : lostBatch;
}

BatchFact batchOfReshape(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned) {
  const Type &from = node.operand(0)->type();
  const BatchPosition &position = operands[0].position;
  if (!hasPosition(operands[0]) || from.elements() == 0)
    return lostBatch;
  const int64_t stride = productOf(from.shape(), position.axis + 1, from.rank()) * position.inner;
  return batchAtStride(stride, position.samples, node.result()->type().shape());
}

BatchFact batchOfBroadcast(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned) {
  return broadcastBatch(operands[0], node.operand(0)->type(), node.result()->type());
}

int64_t transposedAxis(const Node &node, unsigned, int64_t axis) {
  const Shape &permutation = node.get<TransposeAttributes>().permutation;
  return llvm::find(permutation, axis) - permutation.begin();
}

/// Along the batch axis, every part must have complete sequences of all samples.
BatchFact batchOfConcat(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned result) {
  BatchFact fact = keepsBatch(node, operands, result);
  if (!hasPosition(fact) || fact.position.axis != node.get<AxisAttributes>().axis)
    return fact;
  int64_t period = fact.position.samples * fact.position.inner;
  for (const Value *operand : node.operands())
    if (operand->type().dim(fact.position.axis) % period != 0)
      return lostBatch;
  return fact;
}

} // namespace

constinit const OpInfo constantInfo = {
    .name = "constant",
    .doc = "The attribute `value` in `shape`. (C1) It is a splat or has one value per element.",
    .operandNames = {},
    .traits = pure,
    .makeAttributes = makeAttributes<ConstantAttributes>,
    .infer = inferConstant,
    .evaluate = evaluateConstant,
    .vjp = notDifferentiable,
    .cost = costNothing,
    .computeClass = ComputeClass::none,
    .stages = everyStage,
    .batch = losesBatch,
};

constinit const OpInfo iotaInfo = {
    .name = "iota",
    .doc = "start + step * coordinate on `axis`. (C1) 0 <= axis < rank. (C2) The dtype "
           "is no bool. (C3) `shape` has no negative "
           "dim.",
    .operandNames = {},
    .traits = pure,
    .makeAttributes = makeAttributes<IotaAttributes>,
    .infer = inferIota,
    .evaluate = evaluateIota,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::move,
    .stages = everyStage,
    .batch = losesBatch,
};

constinit const OpInfo broadcastInfo = {
    .name = "broadcast",
    .doc = "x repeated along new leading axes and along axes of size 1. (C1) "
           "Right-aligned, each dim of x is that of `shape` or "
           "1. (C2) `shape` has no negative dim.",
    .operandNames = namesX,
    .traits = pure,
    .makeAttributes = makeAttributes<ShapeAttributes>,
    .infer = inferBroadcast,
    .evaluate = evaluateBroadcast,
    .vjp = broadcastVjp,
    .cost = costOfTypes,
    .computeClass = ComputeClass::move,
    .stages = everyStage,
    .batch = batchOfBroadcast,
};

constinit const OpInfo reshapeInfo = {
    .name = "reshape",
    .doc = "x's elements, in row-major order, in another shape. (C1) Both shapes have the same number of elements.",
    .operandNames = namesX,
    .traits = pure | aliasesOperand,
    .makeAttributes = makeAttributes<ShapeAttributes>,
    .infer = inferReshape,
    .evaluate = evaluateReshape,
    .vjp = reshapeVjp,
    .cost = costNothing,
    .computeClass = ComputeClass::none,
    .stages = everyStage,
    .batch = batchOfReshape,
};

constinit const OpInfo stopGradientInfo = {
    .name = "stop_gradient",
    .doc = "x itself. No gradient flows back through it: PyTorch's detach(). "
           "The pass differentiate removes it.",
    .operandNames = namesX,
    .traits = pure | aliasesOperand,
    .infer = inferStopGradient,
    .evaluate = evaluateReshape,
    .vjp = notDifferentiable,
    .cost = costNothing,
    .computeClass = ComputeClass::none,
    .stages = untilTrain,
    .batch = keepsBatch,
};

constinit const OpInfo transposeInfo = {
    .name = "transpose",
    .doc = "x with its axes in another order: dim i of the result is dim "
           "permutation[i] of x. (C1) `permutation` names each axis "
           "of x once.",
    .operandNames = namesX,
    .traits = pure,
    .makeAttributes = makeAttributes<TransposeAttributes>,
    .infer = inferTranspose,
    .evaluate = evaluateTranspose,
    .vjp = transposeVjp,
    .cost = costOfTypes,
    .computeClass = ComputeClass::move,
    .stages = everyStage,
    .batch = batchByAxis<transposedAxis>,
};

constinit const OpInfo concatInfo = {
    .name = "concat",
    .doc = "The operands one after the other along `axis`. (C1) There is at least one. (C2) 0 <= axis < rank. (C3) "
           "They have one "
           "dtype and the same dims beside `axis`. (C4) The result's bytes fit in memory.",
    .operandNames = namesMany,
    .traits = pure,
    .makeAttributes = makeAttributes<AxisAttributes>,
    .infer = inferConcat,
    .evaluate = evaluateConcat,
    .vjp = concatVjp,
    .cost = costOfTypes,
    .computeClass = ComputeClass::move,
    .stages = everyStage,
    .batch = batchOfConcat,
};

} // namespace fsdpc
