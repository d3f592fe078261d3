// Reductions over axes: sum, max, min, product; and arg_max.
#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"

#include <cmath>

namespace fsdpc {

namespace {

/// (C1) axes ascend and are within the rank; (C2) elements are numbers; (C3), if the reduction has no neutral element,
/// none of the axes is empty.
llvm::Error inferReduction(const OpInfo &info, bool hasNeutral, llvm::ArrayRef<Type> operands,
                           const AttributesBase *attributes, llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  const auto &own = attributesOf<ReduceAttributes>(attributes);
  const Type &x = operands[0];
  if (llvm::Error error = checkAxes(info, "C1", own.axes, x.rank()))
    return error;
  if (x.dtype() == DType::boolean)
    return constraintError(info.name, "C2", "elements must be numbers: " + toString(x));
  for (int64_t axis : own.axes)
    if (!hasNeutral && x.dim(axis) == 0)
      return constraintError(info.name, "C3", "axis " + llvm::Twine(axis) + " of " + toString(x) + " is empty");
  llvm::Expected<DType> dtype = dtypeOfSum(info, x.dtype(), own.accumulateF32);
  if (!dtype)
    return dtype.takeError();
  return addResult(info, "C1", *dtype, reducedShape(x.shape(), own.axes, own.keepDims), results);
}

template <const OpInfo &info, bool hasNeutral>
llvm::Error inferReduce(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                        llvm::SmallVectorImpl<Type> &results) {
  return inferReduction(info, hasNeutral, operands, attributes, results);
}

/// Folds each group of elements in row-major order, starting from `first`.
template <auto combine>
void reduceInto(EvaluateContext &context, double first) {
  const HostTensor &x = *context.operands[0];
  HostTensor &result = context.results[0];
  result.values.assign(result.values.size(), first);
  Shape kept = reducedShape(x.type.shape(), context.get<ReduceAttributes>().axes, true);
  Shape strides = broadcastStrides(kept, x.type.shape());
  forEachIndex(x.type.shape(), [&](int64_t flat, llvm::ArrayRef<int64_t> coordinates) {
    double &sum = result.values[flatIndex(coordinates, strides)];
    sum = decltype(combine){}(sum, x.values[flat]);
  });
}

void evaluateReduceSum(EvaluateContext &context) {
  reduceInto<[](double sum, double x) { return sum + x; }>(context, 0);
}
void evaluateReduceProd(EvaluateContext &context) {
  reduceInto<[](double product, double x) { return product * x; }>(context, 1);
}
void evaluateReduceMax(EvaluateContext &context) {
  reduceInto<[](double best, double x) { return best < x || std::isnan(x) ? x : best; }>(context, -INFINITY);
}
void evaluateReduceMin(EvaluateContext &context) {
  reduceInto<[](double best, double x) { return x < best || std::isnan(x) ? x : best; }>(context, INFINITY);
}

/// Broadcasts a value of the result's shape to the shape of x.
Value *stretched(Builder &builder, Value *value, const Node &node) {
  llvm::ArrayRef<int64_t> shape = node.operand(0)->type().shape();
  Shape kept = reducedShape(shape, node.get<ReduceAttributes>().axes, true);
  return builder.broadcast(builder.reshape(value, kept), shape);
}

void reduceSumVjp(VjpContext &context) {
  if (Value *dy = context.resultCotangents[0]; dy && context.needed[0])
    context.operandCotangents[0] = stretched(context.builder, dy, context.node);
}

/// All elements equal to the extremum share its cotangent evenly.
void reduceExtremumVjp(VjpContext &context) {
  Value *dy = context.resultCotangents[0];
  if (!dy || !context.needed[0])
    return;
  Builder &builder = context.builder;
  Value *x = context.node.operand(0);
  Value *reached = builder.binary(Op::equal, x, stretched(builder, context.node.result(), context.node));
  Value *count =
      builder.create(Op::reduceSum, {builder.cast(reached, dy->type().dtype())}, context.node.get<ReduceAttributes>())
          ->result();
  Value *share = stretched(builder, builder.div(dy, count), context.node);
  context.operandCotangents[0] = builder.select(reached, share, builder.constantLike(x, 0));
}

/// The product of the other elements: y / x if the group has no zeros. With a single zero, the product of the rest at
/// the zero and 0 elsewhere. With more zeros, 0.
void reduceProdVjp(VjpContext &context) {
  Value *dy = context.resultCotangents[0];
  if (!dy || !context.needed[0])
    return;
  Builder &builder = context.builder;
  const auto &own = context.node.get<ReduceAttributes>();
  Value *x = context.node.operand(0);
  Value *zero = builder.constantLike(x, 0), *one = builder.constantLike(x, 1);
  Value *isZero = builder.binary(Op::equal, x, zero);
  Value *nonZero = builder.select(isZero, one, x);
  Value *rest =
      stretched(builder, builder.mul(dy, builder.create(Op::reduceProd, {nonZero}, own)->result()), context.node);
  Value *zeros = builder.create(Op::reduceSum, {builder.cast(isZero, x->type().dtype())}, own)->result();
  zeros = stretched(builder, zeros, context.node);
  Value *atZero = builder.select(builder.binary(Op::equal, zeros, one), rest, zero);
  Value *elsewhere = builder.select(builder.binary(Op::equal, zeros, zero), builder.div(rest, nonZero), zero);
  context.operandCotangents[0] = builder.select(isZero, atZero, elsewhere);
}

llvm::Error inferArgMax(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                        llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(argMaxInfo, operands))
    return error;
  int64_t axis = attributesOf<AxisAttributes>(attributes).axis;
  const Type &x = operands[0];
  if (llvm::Error error = checkAxis(argMaxInfo, "C1", axis, x.rank()))
    return error;
  if (x.dim(axis) == 0)
    return constraintError("arg_max", "C2", "axis " + llvm::Twine(axis) + " of " + toString(x) + " is empty");
  return addResult(argMaxInfo, "C3", DType::i64, reducedShape(x.shape(), {axis}, false), results);
}

void evaluateArgMax(EvaluateContext &context) {
  const HostTensor &x = *context.operands[0];
  int64_t axis = context.get<AxisAttributes>().axis;
  int64_t length = x.type.dim(axis), inner = productOf(x.type.shape(), axis + 1, x.type.rank());
  for (size_t line = 0; line < context.results[0].values.size(); ++line) {
    int64_t first = static_cast<int64_t>(line) / inner * length * inner + static_cast<int64_t>(line) % inner;
    int64_t best = 0;
    for (int64_t k = 1; k < length; ++k)
      if (x.values[first + k * inner] > x.values[first + best * inner])
        best = k;
    context.results[0].values[line] = static_cast<double>(best);
  }
}

/// One operation per element read.
Cost reduceCost(const Node &node) {
  return costWithFlops(node, static_cast<double>(node.operand(0)->type().elements()));
}

// ---- where the batch comes out

BatchFact batchOfReduce(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned) {
  const auto &own = node.get<ReduceAttributes>();
  return reducedBatch(operands[0], own.axes, own.keepDims);
}

BatchFact batchOfArgMax(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned) {
  return reducedBatch(operands[0], {node.get<AxisAttributes>().axis}, false);
}

} // namespace

constinit const OpInfo reduceSumInfo = {
    .name = "reduce_sum",
    .doc = "Sums over `axes`, which stay as size 1 if keep_dims; 0 over nothing. "
           "(C1) axes ascend and lie in the rank. (C2) x is a "
           "number.",
    .operandNames = namesX,
    .traits = pure,
    .makeAttributes = makeAttributes<ReduceAttributes>,
    .infer = inferReduce<reduceSumInfo, true>,
    .evaluate = evaluateReduceSum,
    .vjp = reduceSumVjp,
    .cost = reduceCost,
    .computeClass = ComputeClass::reduce,
    .stages = everyStage,
    .batch = batchOfReduce,
    .firstSum = 0,
    .accumulateInF32 = accumulateInF32<ReduceAttributes>,
};

constinit const OpInfo reduceMaxInfo = {
    .name = "reduce_max",
    .doc = "Largest element over `axes`, NaN if there is one; elements that tie "
           "share the cotangent evenly. (C1) axes ascend and lie "
           "in the rank. (C2) x is a number. (C3) None of the axes is empty.",
    .operandNames = namesX,
    .traits = pure,
    .makeAttributes = makeAttributes<ReduceAttributes>,
    .infer = inferReduce<reduceMaxInfo, false>,
    .evaluate = evaluateReduceMax,
    .vjp = reduceExtremumVjp,
    .cost = reduceCost,
    .computeClass = ComputeClass::reduce,
    .stages = everyStage,
    .batch = batchOfReduce,
};

constinit const OpInfo reduceMinInfo = {
    .name = "reduce_min",
    .doc = "Smallest element over `axes`, NaN if there is one; elements that tie "
           "share the cotangent evenly. (C1) axes ascend and lie "
           "in the rank. (C2) x is a number. (C3) None of the axes is empty.",
    .operandNames = namesX,
    .traits = pure,
    .makeAttributes = makeAttributes<ReduceAttributes>,
    .infer = inferReduce<reduceMinInfo, false>,
    .evaluate = evaluateReduceMin,
    .vjp = reduceExtremumVjp,
    .cost = reduceCost,
    .computeClass = ComputeClass::reduce,
    .stages = everyStage,
    .batch = batchOfReduce,
};

constinit const OpInfo reduceProdInfo = {
    .name = "reduce_prod",
    .doc = "Product over `axes`; 1 over nothing; the derivative is exact where "
           "elements are 0. (C1) axes ascend and lie in the rank. "
           "(C2) x is a number.",
    .operandNames = namesX,
    .traits = pure,
    .makeAttributes = makeAttributes<ReduceAttributes>,
    .infer = inferReduce<reduceProdInfo, true>,
    .evaluate = evaluateReduceProd,
    .vjp = reduceProdVjp,
    .cost = reduceCost,
    .computeClass = ComputeClass::reduce,
    .stages = everyStage,
    .batch = batchOfReduce,
};

constinit const OpInfo argMaxInfo = {
    .name = "arg_max",
    .doc = "Index (i64) of the first largest element along `axis`, which goes away. "
           "(C1) 0 <= axis < rank. (C2) The axis is not "
           "empty. (C3) The result's bytes fit in memory.",
    .operandNames = namesX,
    .traits = pure,
    .makeAttributes = makeAttributes<AxisAttributes>,
    .infer = inferArgMax,
    .evaluate = evaluateArgMax,
    .vjp = notDifferentiable,
    .cost = reduceCost,
    .computeClass = ComputeClass::reduce,
    .stages = everyStage,
    .batch = batchOfArgMax,
};

} // namespace fsdpc
