// Scatters, by rows and by elements.
#include "frontend/onnx/translate/indices.h"
#include "frontend/onnx/translate/table.h"

namespace fsdpc {

namespace {

Value *scatterInto(NodeTranslation &t, Value *x, Value *indices, Value *updates, int64_t batchDims) {
  ScatterNdAttributes attributes{batchDims, t.text("reduction", "none")};
  return t.make(Op::scatterNd, {x, indices, updates}, std::move(attributes));
}

void scatterNd(NodeTranslation &t) {
  Value *x = t.input(0);
  const Type &indices = t.input(1)->type();
  if (indices.rank() == 0 || indices.dim(-1) > x->type().rank())
    t.reject("indices " + toString(indices) + " do not address " + toString(x->type()));
  Value *inRange = indicesInRange(t, 1, x->type().shape().take_front(indices.dim(-1)));
  t.setOutput(0, scatterInto(t, x, inRange, t.input(2), 0));
}

/// x with its first elements on every axis replaced by `corner`.
Value *withCorner(NodeTranslation &t, Value *x, Value *corner) {
  const Type &whole = x->type(), &part = corner->type();
  if (whole == part)
    return corner;
  PadAttributes pad{Shape(whole.rank(), 0), Shape(whole.rank(), 0), Shape(whole.rank(), 0)};
  Value *isPart = t.constant(whole.withDType(DType::boolean), 1);
  for (int64_t i = 0; i < whole.rank(); ++i) {
    pad.after[i] = whole.dim(i) - part.dim(i);
    Value *inside = t.binary(Op::less, t.iota(whole.shape(), i), static_cast<double>(part.dim(i)));
    isPart = t.binary(Op::logicalAnd, isPart, inside);
  }
  return t.select(isPart, t.make(Op::pad, {corner}, std::move(pad)), x);
}

void scatterElements(NodeTranslation &t) {
  ElementRows own = elementRows(t);
  const int64_t last = t.input(0)->type().rank() - 1;
  Value *updates = t.moveAxis(t.input(2), own.axis, last);
  Value *rows = t.moveAxis(scatterInto(t, own.rows, own.indices, updates, last), last, own.axis);
  t.setOutput(0, withCorner(t, t.input(0), rows));
}

constexpr TranslationRow rows[] = {
    {"Scatter", scatterElements}, {"ScatterElements", scatterElements}, {"ScatterND", scatterNd}};

} // namespace

TranslationRows scatterTranslations() { return rows; }

} // namespace fsdpc
