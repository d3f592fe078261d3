// slice and pad. Each is the derivative of the other.
#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"

namespace fsdpc {

namespace {

/// (C3) for one axis of `dim` elements.
bool sliceStaysInside(int64_t start, int64_t size, int64_t step, int64_t dim) {
  if (size == 0)
    return start >= 0 && start <= dim;
  int64_t last;
  if (__builtin_mul_overflow(size - 1, step, &last) || __builtin_add_overflow(start, last, &last))
    return false;
  return size > 0 && start >= 0 && start < dim && last >= 0 && last < dim;
}

llvm::Error inferSlice(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                       llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(sliceInfo, operands))
    return error;
  const auto &own = attributesOf<SliceAttributes>(attributes);
  const Type &x = operands[0];
  size_t rank = x.shape().size();
  if (own.starts.size() != rank || own.sizes.size() != rank || own.steps.size() != rank)
    return constraintError("slice", "C1", "starts, sizes and steps need one entry per axis of " + toString(x));
  for (size_t i = 0; i < rank; ++i) {
    if (own.steps[i] == 0)
      return constraintError("slice", "C2", "the step of axis " + llvm::Twine(i) + " is 0");
    if (!sliceStaysInside(own.starts[i], own.sizes[i], own.steps[i], x.dim(i)))
      return constraintError("slice", "C3",
                             llvm::Twine(own.sizes[i]) + " elements from " + llvm::Twine(own.starts[i]) + " by " +
                                 llvm::Twine(own.steps[i]) + " leave axis " + llvm::Twine(i) + " of " + toString(x));
  }
  return addResult(sliceInfo, "C3", x.dtype(), own.sizes, results);
}

void evaluateSlice(EvaluateContext &context) {
  const auto &own = context.get<SliceAttributes>();
  const HostTensor &x = *context.operands[0];
  Shape xStrides = rowMajorStrides(x.type.shape());
  forEachIndex(own.sizes, [&](int64_t flat, llvm::ArrayRef<int64_t> coordinates) {
    int64_t from = 0;
    for (size_t i = 0; i < xStrides.size(); ++i)
      from += (own.starts[i] + coordinates[i] * own.steps[i]) * xStrides[i];
    context.results[0].values[flat] = x.values[from];
  });
}

/// Reverses the axes of x with negative steps. Returns x itself if there are none.
Value *reverseNegativeAxes(Builder &builder, Value *x, llvm::ArrayRef<int64_t> steps) {
  if (llvm::all_of(steps, [](int64_t step) { return step > 0; }))
    return x;
  SliceAttributes reversal{Shape(steps.size(), 0), Shape(x->type().shape()), Shape(steps.size(), 1)};
  for (size_t i = 0; i < steps.size(); ++i)
    if (steps[i] < 0) {
      reversal.starts[i] = reversal.sizes[i] - 1;
      reversal.steps[i] = -1;
    }
  return builder.create(Op::slice, {x}, reversal)->result();
}

/// Moves every element of dy back to its source position, with zeros elsewhere. pad needs ascending order, so axes with
/// negative steps are reversed first.
void sliceVjp(VjpContext &context) {
  Value *dy = context.resultCotangents[0];
  if (!dy || !context.needed[0])
    return;
  const auto &own = context.node.get<SliceAttributes>();
  const Type &x = context.node.operand(0)->type();
  if (dy->type().elements() == 0) {
    context.operandCotangents[0] = context.builder.constant(x, 0);
    return;
  }
  PadAttributes padding;
  for (int64_t i = 0; i < x.rank(); ++i) {
    int64_t last = own.starts[i] + (own.sizes[i] - 1) * own.steps[i];
    padding.before.push_back(std::min(own.starts[i], last));
    padding.after.push_back(x.dim(i) - 1 - std::max(own.starts[i], last));
    padding.interior.push_back(own.sizes[i] == 1 ? 0 : std::abs(own.steps[i]) - 1);
  }
  dy = reverseNegativeAxes(context.builder, dy, own.steps);
  context.operandCotangents[0] = context.builder.create(Op::pad, {dy}, padding)->result();
}

llvm::Error inferPad(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                     llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(padInfo, operands))
    return error;
  const auto &own = attributesOf<PadAttributes>(attributes);
  const Type &x = operands[0];
  size_t rank = x.shape().size();
  if (own.before.size() != rank || own.after.size() != rank || own.interior.size() != rank)
    return constraintError("pad", "C1", "before, after and interior need one entry per axis of " + toString(x));
  Shape shape;
  for (size_t i = 0; i < rank; ++i) {
    if (own.before[i] < 0 || own.after[i] < 0 || own.interior[i] < 0)
      return constraintError("pad", "C2", "axis " + llvm::Twine(i) + " has a negative amount of padding");
    int64_t gaps = std::max<int64_t>(x.dim(i) - 1, 0), dim;
    if (__builtin_mul_overflow(gaps, own.interior[i], &dim) || __builtin_add_overflow(dim, x.dim(i), &dim) ||
        __builtin_add_overflow(dim, own.before[i], &dim) || __builtin_add_overflow(dim, own.after[i], &dim))
      return constraintError("pad", "C3", "axis " + llvm::Twine(i) + " becomes too long");
    shape.push_back(dim);
  }
  return addResult(padInfo, "C3", x.dtype(), shape, results);
}

void evaluatePad(EvaluateContext &context) {
  const auto &own = context.get<PadAttributes>();
  const HostTensor &x = *context.operands[0];
  HostTensor &result = context.results[0];
  result.values.assign(result.values.size(), own.value);
  Shape strides = rowMajorStrides(result.type.shape());
  forEachIndex(x.type.shape(), [&](int64_t flat, llvm::ArrayRef<int64_t> coordinates) {
    int64_t to = 0;
    for (size_t i = 0; i < strides.size(); ++i)
      to += (own.before[i] + coordinates[i] * (own.interior[i] + 1)) * strides[i];
    result.values[to] = x.values[flat];
  });
}

void padVjp(VjpContext &context) {
  Value *dy = context.resultCotangents[0];
  if (!dy || !context.needed[0])
    return;
  const auto &own = context.node.get<PadAttributes>();
  SliceAttributes back{own.before, Shape(context.node.operand(0)->type().shape()), {}};
  for (int64_t interior : own.interior)
    back.steps.push_back(interior + 1);
  context.operandCotangents[0] = context.builder.create(Op::slice, {dy}, back)->result();
}

// ---- where the batch comes out

/// Keeps the batch for a part of the axis that starts with sample 0 and ends with the last one, and for every step-th
/// neighbor of each sample.
BatchFact batchOfSlice(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned) {
  BatchFact fact = operands[0];
  if (!hasPosition(fact))
    return fact;
  BatchPosition &position = fact.position;
  const auto &slice = node.get<SliceAttributes>();
  const int64_t start = slice.starts[position.axis], size = slice.sizes[position.axis],
                step = slice.steps[position.axis];
  if (start == 0 && size == node.operand(0)->type().dim(position.axis) && step == 1)
    return fact;
  const int64_t period = position.samples * position.inner;
  if (step < 1 || position.inner % step != 0 || start % period >= step || size % (period / step) != 0)
    return lostBatch;
  position.inner /= step;
  return fact;
}

BatchFact batchOfPad(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned) {
  const BatchFact &fact = operands[0];
  if (!hasPosition(fact))
    return fact;
  const auto &pad = node.get<PadAttributes>();
  const int64_t axis = fact.position.axis, period = fact.position.samples * fact.position.inner;
  const bool keepsOrder = pad.interior[axis] == 0 && pad.before[axis] % period == 0 && pad.after[axis] % period == 0;
  return keepsOrder ? fact : lostBatch;
}

} // namespace

constinit const OpInfo sliceInfo = {
    .name = "slice",
    .doc = "result[i] = x[starts + i * steps], `sizes` elements per axis. (C1) starts, sizes and steps have one entry "
           "per axis. "
           "(C2) No step is 0. (C3) Every element read is in x; for an empty axis, the start is in [0, dim].",
    .operandNames = namesX,
    .traits = pure,
    .makeAttributes = makeAttributes<SliceAttributes>,
    .infer = inferSlice,
    .evaluate = evaluateSlice,
    .vjp = sliceVjp,
    .cost = costOfSelection,
    .computeClass = ComputeClass::move,
    .stages = everyStage,
    .batch = batchOfSlice,
};

constinit const OpInfo padInfo = {
    .name = "pad",
    .doc = "x with `before` and `after` elements of `value` around it and `interior` ones between neighbours, per "
           "axis. (C1) All "
           "three have one entry per axis. (C2) None is negative. (C3) The result's bytes fit in memory.",
    .operandNames = namesX,
    .traits = pure,
    .makeAttributes = makeAttributes<PadAttributes>,
    .infer = inferPad,
    .evaluate = evaluatePad,
    .vjp = padVjp,
    .cost = costOfTypes,
    .computeClass = ComputeClass::move,
    .stages = everyStage,
    .batch = batchOfPad,
};

} // namespace fsdpc
