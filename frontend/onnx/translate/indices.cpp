#include "frontend/onnx/translate/indices.h"

namespace fsdpc {

namespace {

/// The constant behind the indices, possibly broadcast without a change of the last axis; null for anything else.
const Node *constantBelow(const Value *indices) {
  const Node *node = indices->definer();
  if (node && node->op() == Op::broadcast && node->operand(0)->type().rank() > 0 && indices->type().rank() > 0 &&
      node->operand(0)->type().dim(-1) == indices->type().dim(-1))
    node = node->operand(0)->definer();
  return node && node->op() == Op::constant ? node : nullptr;
}

void requireInRange(NodeTranslation &t, int64_t index, int64_t size) {
  if (index < -size || index >= size)
    t.reject("index " + llvm::Twine(index) + " is outside an axis of " + llvm::Twine(size) + " elements");
}

} // namespace

Value *indicesInRange(NodeTranslation &t, unsigned i, llvm::ArrayRef<int64_t> sizes) {
  Value *indices = t.cast(t.input(i), DType::i64);
  const Node *constant = constantBelow(indices);
  if (!constant || indices->type().elements() == 0 || sizes.empty())
    return indices;
  const Dense &dense = constant->get<ConstantAttributes>().value;
  const auto count = static_cast<int64_t>(sizes.size());
  int64_t stored = dense.isSplat() ? count : constant->result()->type().elements();
  for (int64_t k = 0; k < stored; ++k)
    requireInRange(t, dense.integerAt(dense.isSplat() ? 0 : k), sizes[k % count]);
  return indices;
}

ElementRows elementRows(NodeTranslation &t) {
  Value *x = t.input(0);
  const int64_t rank = x->type().rank(), axis = t.normalAxis(t.integer("axis", 0), rank);
  Value *indices = indicesInRange(t, 1, {x->type().dim(axis)});
  const Type &type = indices->type();
  if (type.rank() != rank)
    t.reject("indices have rank " + llvm::Twine(type.rank()) + ", the data has " + llvm::Twine(rank));
  Value *corner = x;
  for (int64_t i = 0; i < rank; ++i) {
    if (i == axis)
      continue;
    if (type.dim(i) > x->type().dim(i))
      t.reject("indices " + toString(type) + " have more elements on axis " + llvm::Twine(i) + " than the data " +
               toString(x->type()));
    corner = t.slice(corner, i, 0, type.dim(i));
  }
  Value *moved = t.moveAxis(indices, axis, rank - 1);
  Shape shape(moved->type().shape());
  shape.push_back(1);
  return {axis, corner, t.moveAxis(corner, axis, rank - 1), t.reshape(moved, shape)};
}

} // namespace fsdpc
