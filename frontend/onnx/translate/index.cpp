// Ops with indices: gathers, positions of maxima, the largest elements, running sums.
#include "frontend/onnx/translate/fold.h"
#include "frontend/onnx/translate/indices.h"
#include "frontend/onnx/translate/table.h"
#include <algorithm>

namespace fsdpc {

namespace {

/// The first index if the indices are start, start + 1, ... inside 0..size-1. A slice is then sufficient.
std::optional<int64_t> contiguousStart(NodeTranslation &t, const Value *indices, int64_t size) {
  const Dense *dense = t.constantOf(indices);
  int64_t count = indices->type().elements();
  if (!dense || count == 0 || count > size)
    return std::nullopt;
  int64_t start = dense->integerAt(0);
  start += start < 0 ? size : 0;
  for (int64_t i = 1; i < count; ++i)
    if (dense->integerAt(i) != start + i)
      return std::nullopt;
  return start >= 0 && start + count <= size ? std::optional<int64_t>(start) : std::nullopt;
}

Value *gathered(NodeTranslation &t, Value *x, Value *indices, int64_t axis) {
  std::optional<int64_t> start = contiguousStart(t, indices, x->type().dim(axis));
  if (!start)
    return t.make(Op::gather, {x, indices}, AxisAttributes{axis});
  Shape shape(x->type().shape().take_front(axis));
  shape.append(indices->type().shape().begin(), indices->type().shape().end());
  shape.append(x->type().shape().begin() + axis + 1, x->type().shape().end());
  return t.reshape(t.slice(x, axis, *start, indices->type().elements()), shape);
}

void gather(NodeTranslation &t) {
  Value *x = t.input(0);
  int64_t axis = t.normalAxis(t.integer("axis", 0), x->type().rank());
  t.setOutput(0, gathered(t, x, indicesInRange(t, 1, {x->type().dim(axis)}), axis));
}

/// result[i,j,k] = x[i, indices[i,j,k], k]
void gatherElements(NodeTranslation &t) {
  ElementRows own = elementRows(t);
  const int64_t last = t.input(0)->type().rank() - 1;
  Value *found = t.make(Op::gatherNd, {own.rows, own.indices}, GatherNdAttributes{last});
  t.setOutput(0, t.moveAxis(found, last, own.axis));
}

void gatherNd(NodeTranslation &t) {
  Value *x = t.input(0);
  const Type &indices = t.input(1)->type();
  int64_t batchDims = t.integer("batch_dims", 0);
  bool fits = indices.rank() > 0 && batchDims >= 0 && batchDims < x->type().rank() &&
              indices.dim(-1) <= x->type().rank() - batchDims;
  if (!fits)
    t.reject("indices " + toString(indices) + " with batch_dims=" + llvm::Twine(batchDims) + " do not address " +
             toString(x->type()));
  Value *inRange = indicesInRange(t, 1, x->type().shape().slice(batchDims, indices.dim(-1)));
  t.setOutput(0, t.make(Op::gatherNd, {x, inRange}, GatherNdAttributes{batchDims}));
}

/// Selects the elements, or slices along an axis, where a constant condition holds.
void compress(NodeTranslation &t) {
  Value *x = t.has("axis") ? t.input(0) : t.reshape(t.input(0), {t.input(0)->type().elements()});
  int64_t axis = t.normalAxis(t.integer("axis", 0), x->type().rank());
  const Dense *condition = t.constantOf(t.input(1));
  int64_t count = t.input(1)->type().elements();
  if (!condition)
    t.reject("its condition must be known when compiling, for it decides the shape of the result");
  if (count > x->type().dim(axis))
    t.reject("a condition of " + llvm::Twine(count) + " elements for an axis of " + llvm::Twine(x->type().dim(axis)));
  Shape kept;
  for (int64_t i = 0; i < count; ++i)
    if (condition->at(condition->isSplat() ? 0 : i) != 0)
      kept.push_back(i);
  t.setOutput(0, gathered(t, x, t.integerTensor(kept), axis));
}

/// The index of the largest element, the last one of equal ones if `last`.
Value *indexOfLargest(NodeTranslation &t, Value *x, int64_t axis, bool last) {
  if (!last)
    return t.make(Op::argMax, {x}, AxisAttributes{axis});
  int64_t size = x->type().dim(axis);
  Value *fromEnd = t.make(Op::argMax, {t.slice(x, axis, size - 1, size, -1)}, AxisAttributes{axis});
  return t.binary(Op::sub, t.constantLike(fromEnd, static_cast<double>(size - 1)), fromEnd);
}

template <bool isMinimum>
void argMax(NodeTranslation &t) {
  Value *x = t.input(0);
  int64_t axis = t.normalAxis(t.integer("axis", 0), x->type().rank());
  Value *index = indexOfLargest(t, isMinimum ? t.unary(Op::neg, x) : x, axis, t.integer("select_last_index", 0) != 0);
  Shape shape(x->type().shape());
  shape[axis] = 1;
  t.setOutput(0, t.integer("keepdims", 1) ? t.reshape(index, shape) : index);
}

/// 1 at the first largest element along the axis, else 0.
void hardmax(NodeTranslation &t) {
  Value *x = t.input(0);
  int64_t axis = t.normalAxis(t.integer("axis", -1), x->type().rank());
  Shape line(x->type().shape());
  line[axis] = 1;
  Value *index = t.reshape(indexOfLargest(t, x, axis, false), line);
  Value *isLargest = t.binary(Op::equal, index, t.iota(x->type().shape(), axis));
  t.setOutput(0, t.cast(isLargest, x->type().dtype()));
}

/// Elements are always sorted, whatever `sorted` is.
void topK(NodeTranslation &t) {
  Value *x = t.input(0);
  int64_t last = x->type().rank() - 1, axis = t.normalAxis(t.integer("axis", -1), x->type().rank());
  TopKAttributes attributes;
  attributes.k = t.constantInteger(1, "K");
  attributes.smallest = t.integer("largest", 1) == 0;
  if (attributes.k > x->type().dim(axis))
    t.reject("K is " + llvm::Twine(attributes.k) + ", axis " + llvm::Twine(axis) + " has " +
             llvm::Twine(x->type().dim(axis)) + " elements");
  Node *node = t.makeNode(Op::topK, {t.moveAxis(x, axis, last)}, attributes);
  llvm::SmallVector<Value *, 2> results = t.state.constants.fold(t.state.builder, node);
  if (results.empty())
    results = {node->result(0), node->result(1)};
  for (unsigned i = 0; i < 2; ++i)
    if (t.wantsOutput(i))
      t.setOutput(i, t.moveAxis(results[i], last, axis));
}

void cumulativeSum(NodeTranslation &t) {
  CumulativeSumAttributes attributes;
  attributes.axis = t.normalAxis(t.constantInteger(1, "the axis"), t.input(0)->type().rank());
  attributes.exclusive = t.integer("exclusive", 0) != 0;
  attributes.reverse = t.integer("reverse", 0) != 0;
  t.setOutput(0, t.make(Op::cumulativeSum, {t.input(0)}, attributes));
}

/// `on` where the index equals the coordinate along the new axis, else `off`.
void oneHot(NodeTranslation &t) {
  Value *indices = t.cast(t.input(0), DType::i64), *values = t.input(2);
  double depth = t.constantReal(1, "the depth");
  if (depth < 0 || depth > (1 << 24))
    t.reject("a depth of " + llvm::Twine(static_cast<int64_t>(depth)));
  int64_t axis = t.normalAxis(t.integer("axis", -1), indices->type().rank() + 1);
  Shape line(indices->type().shape()), shape;
  line.insert(line.begin() + axis, 1);
  shape = line;
  shape[axis] = static_cast<int64_t>(depth);
  Value *fromEnd = t.binary(Op::add, indices, depth);
  Value *place = t.reshape(t.select(t.binary(Op::less, indices, 0.0), fromEnd, indices), line);
  Value *isHot = t.binary(Op::equal, place, t.iota(shape, axis));
  Value *off = t.reshape(t.slice(values, 0, 0, 1), {}), *on = t.reshape(t.slice(values, 0, 1, 1), {});
  t.setOutput(0, t.select(isHot, on, off));
}

constexpr TranslationRow rows[] = {
    {"ArgMax", argMax<false>}, {"ArgMin", argMax<true>},
    {"Compress", compress},    {"CumSum", cumulativeSum},
    {"Gather", gather},        {"GatherElements", gatherElements},
    {"GatherND", gatherNd},    {"Hardmax", hardmax},
    {"OneHot", oneHot},        {"TopK", topK},
};

} // namespace

TranslationRows indexTranslations() { return rows; }

} // namespace fsdpc
