// Ops that address elements by other elements: gather, scatter_add, gather_nd; and cumulative_sum.
//
// An index in [-d, d) selects an element of an axis of d elements, negative ones from its end. Other indices are errors
// in the data that no shape rule can detect. Here a gathered element is then NaN (0 for integers) and a scattered one
// is dropped.
#include "ir/ops/index.h"

#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"

#include <limits>

namespace fsdpc {

int64_t normalisedIndex(double index, int64_t size) {
  int64_t position = static_cast<int64_t>(index);
  if (position < 0)
    position += size;
  return position >= 0 && position < size ? position : -1;
}

IndexTuples::IndexTuples(const Type &x, const Type &indices, int64_t batch) : batch(batch), depth(indices.dim(-1)) {
  dims = x.shape().slice(batch, depth);
  batches = productOf(x.shape(), 0, batch);
  tuples = productOf(indices.shape(), batch, indices.rank() - 1);
  rows = productOf(dims, 0, depth);
  inner = productOf(x.shape(), batch + depth, x.rank());
  strides = rowMajorStrides(dims);
}

int64_t IndexTuples::rowOf(int64_t tuple, llvm::ArrayRef<double> indices) const {
  int64_t row = tuple / tuples * rows;
  for (int64_t k = 0; k < depth; ++k) {
    int64_t index = normalisedIndex(indices[tuple * depth + k], dims[k]);
    if (index < 0)
      return -1;
    row += index * strides[k];
  }
  return row;
}

llvm::Error checkIndexTuples(const OpInfo &info, llvm::ArrayRef<Type> operands, int64_t batch) {
  const Type &x = operands[0], &indices = operands[1];
  if (llvm::Error error = checkIndex(info, "C1", operands, 1))
    return error;
  if (batch < 0 || batch >= x.rank() || batch >= indices.rank() ||
      x.shape().take_front(batch) != indices.shape().take_front(batch))
    return constraintError(info.name, "C2",
                           toString(x) + " and " + toString(indices) + " do not share " + llvm::Twine(batch) +
                               " leading dims and more");
  int64_t depth = indices.dim(-1);
  if (depth < 1 || depth > x.rank() - batch)
    return constraintError(info.name, "C3",
                           "the last dim of " + toString(indices) + " must be 1 to " + llvm::Twine(x.rank() - batch));
  return llvm::Error::success();
}

namespace {

double outsideValue(DType dtype) { return isFloat(dtype) ? std::numeric_limits<double>::quiet_NaN() : 0; }

Shape joined(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b, llvm::ArrayRef<int64_t> c) {
  Shape shape(a);
  shape.append(b.begin(), b.end());
  shape.append(c.begin(), c.end());
  return shape;
}

// ---- gather, scatter_add

llvm::Error inferGather(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                        llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(gatherInfo, operands))
    return error;
  int64_t axis = attributesOf<AxisAttributes>(attributes).axis;
  const Type &x = operands[0];
  if (llvm::Error error = checkAxis(gatherInfo, "C1", axis, x.rank()))
    return error;
  if (llvm::Error error = checkIndex(gatherInfo, "C2", operands, 1))
    return error;
  Shape shape = joined(x.shape().take_front(axis), operands[1].shape(), x.shape().drop_front(axis + 1));
  return addResult(gatherInfo, "C3", x.dtype(), shape, results);
}

/// Calls visit(offset of a row of `inner` elements in the indexed tensor or -1, its offset in the tensor of picked
/// rows).
template <class Visit>
void forEachPickedRow(llvm::ArrayRef<double> indices, int64_t outer, int64_t size, int64_t inner, Visit visit) {
  int64_t count = static_cast<int64_t>(indices.size());
  for (int64_t i = 0; i < outer; ++i)
    for (int64_t k = 0; k < count; ++k) {
      int64_t index = normalisedIndex(indices[k], size);
      visit(index < 0 ? -1 : (i * size + index) * inner, (i * count + k) * inner);
    }
}

void evaluateGather(EvaluateContext &context) {
  int64_t axis = context.get<AxisAttributes>().axis;
  const HostTensor &x = *context.operands[0];
  HostTensor &result = context.results[0];
  int64_t inner = productOf(x.type.shape(), axis + 1, x.type.rank());
  forEachPickedRow(context.operands[1]->values, productOf(x.type.shape(), 0, axis), x.type.dim(axis), inner,
                   [&](int64_t from, int64_t to) {
                     for (int64_t j = 0; j < inner; ++j)
                       result.values[to + j] = from < 0 ? outsideValue(x.type.dtype()) : x.values[from + j];
                   });
}

void gatherVjp(VjpContext &context) {
  Value *dy = context.resultCotangents[0];
  if (!dy || !context.needed[0])
    return;
  int64_t axis = context.node.get<AxisAttributes>().axis;
  ScatterAddAttributes back{axis, context.node.operand(0)->type().dim(axis)};
  context.operandCotangents[0] = context.builder.create(Op::scatterAdd, {context.node.operand(1), dy}, back)->result();
}

llvm::Error inferScatterAdd(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                            llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(scatterAddInfo, operands))
    return error;
  const auto &own = attributesOf<ScatterAddAttributes>(attributes);
  const Type &indices = operands[0], &updates = operands[1];
  if (llvm::Error error = checkIndex(scatterAddInfo, "C1", operands, 0))
    return error;
  if (own.axis < 0 || own.axis > updates.rank() - indices.rank() ||
      updates.shape().slice(own.axis, indices.rank()) != indices.shape())
    return constraintError("scatter_add", "C2",
                           "the updates " + toString(updates) + " have no dims " + shapeText(indices.shape()) +
                               " of the indices at axis " + llvm::Twine(own.axis));
  Shape shape =
      joined(updates.shape().take_front(own.axis), {own.size}, updates.shape().drop_front(own.axis + indices.rank()));
  llvm::Expected<DType> dtype = dtypeOfSum(scatterAddInfo, updates.dtype(), own.accumulateF32);
  if (!dtype)
    return dtype.takeError();
  return addResult(scatterAddInfo, "C3", *dtype, shape, results);
}

void evaluateScatterAdd(EvaluateContext &context) {
  const auto &own = context.get<ScatterAddAttributes>();
  const HostTensor &updates = *context.operands[1];
  HostTensor &result = context.results[0];
  int64_t inner = productOf(result.type.shape(), own.axis + 1, result.type.rank());
  forEachPickedRow(context.operands[0]->values, productOf(result.type.shape(), 0, own.axis), own.size, inner,
                   [&](int64_t to, int64_t from) {
                     for (int64_t j = 0; to >= 0 && j < inner; ++j)
                       result.values[to + j] += updates.values[from + j];
                   });
}

void scatterAddVjp(VjpContext &context) {
  Value *dy = context.resultCotangents[0];
  if (!dy || !context.needed[1])
    return;
  AxisAttributes own{context.node.get<ScatterAddAttributes>().axis};
  context.operandCotangents[1] = context.builder.create(Op::gather, {dy, context.node.operand(0)}, own)->result();
}

// ---- gather_nd

llvm::Error inferGatherNd(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                          llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(gatherNdInfo, operands))
    return error;
  int64_t batch = attributesOf<GatherNdAttributes>(attributes).batchDims;
  if (llvm::Error error = checkIndexTuples(gatherNdInfo, operands, batch))
    return error;
  const Type &x = operands[0], &indices = operands[1];
  int64_t depth = indices.dim(-1);
  Shape shape = joined(indices.shape().drop_back(1), {}, x.shape().drop_front(batch + depth));
  return addResult(gatherNdInfo, "C4", x.dtype(), shape, results);
}

void evaluateGatherNd(EvaluateContext &context) {
  const HostTensor &x = *context.operands[0], &indices = *context.operands[1];
  IndexTuples own(x.type, indices.type, context.get<GatherNdAttributes>().batchDims);
  for (int64_t tuple = 0; tuple < own.batches * own.tuples; ++tuple) {
    int64_t row = own.rowOf(tuple, indices.values);
    for (int64_t j = 0; j < own.inner; ++j)
      context.results[0].values[tuple * own.inner + j] =
          row >= 0 ? x.values[row * own.inner + j] : outsideValue(x.type.dtype());
  }
}

/// The row of x, over all batches, that each tuple of a gather_nd picks: [batches * tuples].
Value *flatRows(Builder &builder, Value *indices, const IndexTuples &own) {
  int64_t count = own.batches * own.tuples;
  DType dtype = indices->type().dtype();
  Value *perTuple = builder.reshape(indices, {count, own.depth});
  IotaAttributes batchStart{dtype, {own.batches, own.tuples}, 0, 0, static_cast<double>(own.rows)};
  Value *rows = builder.reshape(builder.create(Op::iota, {}, batchStart)->result(), {count});
  for (int64_t k = 0; k < own.depth; ++k) {
    Value *column = builder.create(Op::slice, {perTuple}, SliceAttributes{{0, k}, {count, 1}, {1, 1}})->result();
    Value *index = builder.reshape(column, {count});
    Value *negative = builder.binary(Op::less, index, builder.constantLike(index, 0));
    Value *fromEnd = builder.add(index, builder.constantLike(index, static_cast<double>(own.dims[k])));
    index = builder.select(negative, fromEnd, index);
    Value *stride = builder.constantLike(index, static_cast<double>(own.strides[k]));
    rows = builder.add(rows, builder.mul(index, stride));
  }
  return rows;
}

void gatherNdVjp(VjpContext &context) {
  Value *dy = context.resultCotangents[0];
  if (!dy || !context.needed[0])
    return;
  Value *x = context.node.operand(0), *indices = context.node.operand(1);
  int64_t batch = context.node.get<GatherNdAttributes>().batchDims;
  IndexTuples own(x->type(), indices->type(), batch);
  Builder &builder = context.builder;
  // With several batches, scatters each into its own rows. scatter_add handles only one table of rows.
  if (own.batches > 1) {
    Value *zeros = builder.constantLike(x, 0);
    context.operandCotangents[0] =
        builder.create(Op::scatterNd, {zeros, indices, dy}, ScatterNdAttributes{batch, "add"})->result();
    return;
  }
  Value *updates = builder.reshape(dy, {own.batches * own.tuples, own.inner});
  ScatterAddAttributes back{0, own.batches * own.rows};
  Value *sum = builder.create(Op::scatterAdd, {flatRows(builder, indices, own), updates}, back)->result();
  context.operandCotangents[0] = builder.reshape(sum, x->type().shape());
}

// ---- cumulative_sum

llvm::Error inferCumulativeSum(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                               llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(cumulativeSumInfo, operands))
    return error;
  if (llvm::Error error = checkAxis(cumulativeSumInfo, "C1", attributesOf<CumulativeSumAttributes>(attributes).axis,
                                    operands[0].rank()))
    return error;
  if (operands[0].dtype() == DType::boolean)
    return constraintError("cumulative_sum", "C2", "elements must be numbers: " + toString(operands[0]));
  return addResult(cumulativeSumInfo, "C2", operands[0].dtype(), operands[0].shape(), results);
}

void evaluateCumulativeSum(EvaluateContext &context) {
  const auto &own = context.get<CumulativeSumAttributes>();
  const HostTensor &x = *context.operands[0];
  int64_t length = x.type.dim(own.axis);
  int64_t inner = productOf(x.type.shape(), own.axis + 1, x.type.rank());
  int64_t outer = productOf(x.type.shape(), 0, own.axis);
  for (int64_t line = 0; line < outer * inner; ++line) {
    int64_t first = line / inner * length * inner + line % inner;
    double sum = 0;
    for (int64_t k = 0; k < length; ++k) {
      int64_t at = first + (own.reverse ? length - 1 - k : k) * inner;
      double before = sum;
      sum += x.values[at];
      context.results[0].values[at] = own.exclusive ? before : sum;
    }
  }
}

void cumulativeSumVjp(VjpContext &context) {
  Value *dy = context.resultCotangents[0];
  if (!dy || !context.needed[0])
    return;
  CumulativeSumAttributes back = context.node.get<CumulativeSumAttributes>();
  back.reverse = !back.reverse;
  context.operandCotangents[0] = context.builder.create(Op::cumulativeSum, {dy}, back)->result();
}

constexpr llvm::StringRef namesGather[] = {"x", "indices"};
constexpr llvm::StringRef namesScatter[] = {"indices", "updates"};

// ---- where the batch comes out

/// Gather: the axes of the indices replace `axis` of x.
int64_t axisOfGather(const Node &node, unsigned operand, int64_t axis) {
  int64_t gathered = node.get<AxisAttributes>().axis;
  if (operand == 1)
    return gathered + axis;
  if (axis == gathered)
    return -1;
  return axis < gathered ? axis : axis - 1 + node.operand(1)->type().rank();
}

int64_t axisOfGatherNd(const Node &node, unsigned operand, int64_t axis) {
  const Type &indices = node.operand(1)->type();
  int64_t batchDims = node.get<GatherNdAttributes>().batchDims, depth = indices.dim(-1);
  if (operand == 1)
    return axis < indices.rank() - 1 ? axis : -1;
  if (axis < batchDims)
    return axis;
  return axis < batchDims + depth ? -1 : axis - batchDims - depth + indices.rank() - 1;
}

int64_t axisOfScatterAdd(const Node &node, unsigned operand, int64_t axis) {
  int64_t first = node.get<ScatterAddAttributes>().axis, count = node.operand(0)->type().rank();
  if (operand == 0 || (axis >= first && axis < first + count))
    return -1;
  return axis < first ? axis : axis - count + 1;
}

bool sumsAlong(const Node &node, int64_t axis) { return axis == node.get<CumulativeSumAttributes>().axis; }

} // namespace

constinit const OpInfo gatherInfo = {
    .name = "gather",
    .doc = "x with `axis` replaced by the axes of indices: the rows of x they name, negative ones from the end. (C1) 0 "
           "<= axis < "
           "rank of x. (C2) indices are i64 or i32. (C3) The result's bytes fit in memory.",
    .operandNames = namesGather,
    .traits = pure,
    .makeAttributes = makeAttributes<AxisAttributes>,
    .infer = inferGather,
    .evaluate = evaluateGather,
    .vjp = gatherVjp,
    .cost = costOfSelection,
    .computeClass = ComputeClass::move,
    .stages = everyStage,
    .batch = batchByAxis<axisOfGather>,
};

constinit const OpInfo scatterAddInfo = {
    .name = "scatter_add",
    .doc = "Zeros with `size` elements on `axis`, where the rows of updates are "
           "added at the places that indices name: what gather "
           "does to cotangents. (C1) indices are i64 or i32. (C2) updates have "
           "the dims of indices from `axis` on. (C3) The "
           "result's bytes fit in memory.",
    .operandNames = namesScatter,
    .traits = pure,
    .makeAttributes = makeAttributes<ScatterAddAttributes>,
    .infer = inferScatterAdd,
    .evaluate = evaluateScatterAdd,
    .vjp = scatterAddVjp,
    .cost = costOfTypes,
    .computeClass = ComputeClass::move,
    .stages = everyStage,
    .batch = batchByAxis<axisOfScatterAdd>,
    .firstSum = 0,
    .accumulateInF32 = accumulateInF32<ScatterAddAttributes>,
};

constinit const OpInfo gatherNdInfo = {
    .name = "gather_nd",
    .doc = "What each tuple along the last axis of indices picks from x, after "
           "batch_dims leading axes that both share. (C1) "
           "indices are i64 or i32. (C2) The batch dims agree and leave an axis in "
           "each. (C3) A tuple has 1 to rank of x minus "
           "batch_dims entries. (C4) The result's bytes fit in memory.",
    .operandNames = namesGather,
    .traits = pure,
    .makeAttributes = makeAttributes<GatherNdAttributes>,
    .infer = inferGatherNd,
    .evaluate = evaluateGatherNd,
    .vjp = gatherNdVjp,
    .cost = costOfSelection,
    .computeClass = ComputeClass::move,
    .stages = everyStage,
    .batch = batchByAxis<axisOfGatherNd>,
};

constinit const OpInfo cumulativeSumInfo = {
    .name = "cumulative_sum",
    .doc = "Sums of x along `axis` up to each element, from the end if "
           "`reverse`, without the element itself if `exclusive`. (C1) 0 "
           "<= axis < rank. (C2) x is a number.",
    .operandNames = namesX,
    .traits = pure,
    .makeAttributes = makeAttributes<CumulativeSumAttributes>,
    .infer = inferCumulativeSum,
    .evaluate = evaluateCumulativeSum,
    .vjp = cumulativeSumVjp,
    .cost = costOfTypes,
    .computeClass = ComputeClass::reduce,
    .stages = everyStage,
    .batch = batchUnlessMixed<sumsAlong>,
};

} // namespace fsdpc
