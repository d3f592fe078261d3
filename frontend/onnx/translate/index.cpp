// Ops with indices: gathers, positions of maxima, running sums.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"
#include <algorithm>

namespace fsdpc {

namespace {

/// The first index if the indices are start, start + 1, ... inside 0..size-1: then a slice does.
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

void gather(NodeTranslation &t) {
  Value *x = t.input(0), *indices = t.input(1);
  int64_t axis = t.normalAxis(t.integer("axis", 0), x->type().rank());
  std::optional<int64_t> start = contiguousStart(t, indices, x->type().dim(axis));
  if (!start)
    return t.setOutput(0, t.make(Op::gather, {x, t.cast(indices, DType::i64)}, AxisAttributes{axis}));
  Shape shape(x->type().shape().take_front(axis));
  shape.append(indices->type().shape().begin(), indices->type().shape().end());
  shape.append(x->type().shape().begin() + axis + 1, x->type().shape().end());
  t.setOutput(0, t.reshape(t.slice(x, axis, *start, indices->type().elements()), shape));
}

/// result[i,j,k] = x[i, indices[i,j,k], k]: a gather from x laid flat, with the other coordinates added to the index.
void gatherElements(NodeTranslation &t) {
  Value *x = t.input(0), *indices = t.cast(t.input(1), DType::i64);
  const Type &type = x->type();
  int64_t axis = t.normalAxis(t.integer("axis", 0), type.rank()), size = type.dim(axis), stride = 1;
  if (indices->type().rank() != type.rank())
    t.reject("indices have rank " + llvm::Twine(indices->type().rank()) + ", the data has " + llvm::Twine(type.rank()));
  Value *isNegative = t.binary(Op::less, indices, 0.0);
  Value *place = t.select(isNegative, t.binary(Op::add, indices, static_cast<double>(size)), indices);
  Value *flat = nullptr;
  for (int64_t i = type.rank(); i-- > 0; stride *= type.dim(i)) {
    Value *coordinate = i == axis ? place : t.iota(indices->type().shape(), i);
    Value *offset = t.binary(Op::mul, coordinate, static_cast<double>(stride));
    flat = flat ? t.binary(Op::add, flat, offset) : offset;
  }
  t.setOutput(0, t.make(Op::gather, {t.reshape(x, {type.elements()}), flat}, AxisAttributes{0}));
}

void gatherNd(NodeTranslation &t) {
  Value *indices = t.cast(t.input(1), DType::i64);
  t.setOutput(0, t.make(Op::gatherNd, {t.input(0), indices}, GatherNdAttributes{t.integer("batch_dims", 0)}));
}

template <bool isMinimum>
void argMax(NodeTranslation &t) {
  Value *x = t.input(0);
  int64_t axis = t.normalAxis(t.integer("axis", 0), x->type().rank());
  if (t.integer("select_last_index", 0) != 0)
    t.reject("select_last_index=1 is not supported");
  Value *index = t.make(Op::argMax, {isMinimum ? t.unary(Op::neg, x) : x}, AxisAttributes{axis});
  Shape shape(x->type().shape());
  shape[axis] = 1;
  t.setOutput(0, t.integer("keepdims", 1) ? t.reshape(index, shape) : index);
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
    {"ArgMax", argMax<false>}, {"ArgMin", argMax<true>},           {"CumSum", cumulativeSum}, {"Gather", gather},
    {"GatherND", gatherNd},    {"GatherElements", gatherElements}, {"OneHot", oneHot},
};

} // namespace

TranslationRows indexTranslations() { return rows; }

} // namespace fsdpc
