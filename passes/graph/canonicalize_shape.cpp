#include "ir/ops/attributes.h"
#include "passes/graph/canonicalize.h"
#include "passes/graph/match.h"
#include "passes/graph/swap_reshape.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"

namespace fsdpc {

namespace {

Shape dimsOf(const Value *value) { return Shape(value->type().shape()); }

// ---- broadcast, reshape

/// True if the reshape only adds leading axes of size 1.
bool addsLeadingOnes(const Node &reshape) {
  llvm::ArrayRef<int64_t> before = reshape.operand(0)->type().shape(), after = reshape.result()->type().shape();
  return after.size() >= before.size() && after.take_back(before.size()) == before &&
         llvm::all_of(after.drop_back(before.size()), [](int64_t dim) { return dim == 1; });
}

Value *simplifyBroadcast(const Node &node, Builder &builder) {
  Value *x = node.operand(0);
  Shape shape = dimsOf(node.result());
  if (x->type().shape() == llvm::ArrayRef<int64_t>(shape))
    return x;
  if (x->type().elements() == node.result()->type().elements())
    return builder.reshape(x, shape);
  if (Node *inner = definedBy(x, Op::broadcast))
    return builder.broadcast(inner->operand(0), shape);
  if (Node *reshape = definedBy(x, Op::reshape); reshape && addsLeadingOnes(*reshape))
    return builder.broadcast(reshape->operand(0), shape);
  return nullptr;
}

Value *simplifyReshape(const Node &node, Builder &builder) {
  Value *x = node.operand(0);
  Shape shape = dimsOf(node.result());
  if (x->type().shape() == llvm::ArrayRef<int64_t>(shape))
    return x;
  if (Node *inner = definedBy(x, Op::reshape))
    return builder.reshape(inner->operand(0), shape);
  // A transpose with other uses would be computed twice.
  if (Node *transpose = definedBy(x, Op::transpose); transpose && x->hasOneUse())
    return reshapeBeforeTranspose(*transpose, shape, builder);
  return nullptr;
}

// ---- transpose

/// True if axes longer than 1 keep their order.
bool movesOnlyOnes(const Type &type, llvm::ArrayRef<int64_t> permutation) {
  int64_t last = -1;
  for (int64_t axis : permutation) {
    if (type.dim(axis) == 1)
      continue;
    if (axis < last)
      return false;
    last = axis;
  }
  return true;
}

/// Axes of size 1 can be at any position in x. They are moved to their positions in the result, so that only axes that
/// really move are transposed. With a batch of one, attention then recognizes the permutation of the heads.
///     transpose %x {1,2,0,3} : [64,1,4,16] -> [1,4,64,16]     ->     %r = reshape %x [1,64,4,16]; transpose %r
///     {0,2,1,3}
Value *transposeAroundOnes(const Node &node, Builder &builder) {
  Value *x = node.operand(0);
  const Shape &permutation = node.get<TransposeAttributes>().permutation;
  llvm::ArrayRef<int64_t> before = x->type().shape(), after = node.result()->type().shape();
  const auto staysInPlace = [&](size_t i) { return after[i] != 1 || permutation[i] == static_cast<int64_t>(i); };
  if (llvm::all_of(llvm::seq<size_t>(0, after.size()), staysInPlace))
    return nullptr;
  Shape shape(after.size(), 1), moved(after.size()), placeOf(after.size());
  size_t place = 0;
  for (size_t axis = 0; axis < before.size(); ++axis) {
    if (before[axis] == 1)
      continue;
    while (after[place] == 1)
      ++place;
    shape[place] = before[axis];
    placeOf[axis] = static_cast<int64_t>(place++);
  }
  for (size_t i = 0; i < after.size(); ++i)
    moved[i] = after[i] == 1 ? static_cast<int64_t>(i) : placeOf[permutation[i]];
  return builder.transpose(builder.reshape(x, shape), moved);
}

Value *simplifyTranspose(const Node &node, Builder &builder) {
  Value *x = node.operand(0);
  const Shape &permutation = node.get<TransposeAttributes>().permutation;
  if (movesOnlyOnes(x->type(), permutation))
    return builder.reshape(x, node.result()->type().shape());
  Node *inner = definedBy(x, Op::transpose);
  if (!inner)
    return transposeAroundOnes(node, builder);
  Shape composed;
  for (int64_t axis : permutation)
    composed.push_back(inner->get<TransposeAttributes>().permutation[axis]);
  return builder.transpose(inner->operand(0), composed);
}

// ---- slice, pad, gather

Value *composeSlices(const Node &node, const Node &inner, Builder &builder) {
  SliceAttributes composed = node.get<SliceAttributes>();
  const auto &first = inner.get<SliceAttributes>();
  for (size_t i = 0; i < composed.starts.size(); ++i) {
    composed.starts[i] = first.starts[i] + composed.starts[i] * first.steps[i];
    composed.steps[i] *= first.steps[i];
  }
  return builder.create(Op::slice, {inner.operand(0)}, composed)->result();
}

// Limit for a tensor that q, k and v are sliced from: it has a few users.
constexpr int maxSlices = 16;

bool isOnlySliced(const Value *value) {
  int count = 0;
  for (Use *use = value->uses(); use; use = use->next())
    if (++count > maxSlices || use->user()->op() != Op::slice)
      return false;
  return true;
}

///     %t = transpose %x; %y = slice %t     ->     %s = slice %x; %y = transpose %s
Value *sliceBeforeTranspose(const Node &node, const Node &transpose, Builder &builder) {
  const auto &outer = node.get<SliceAttributes>();
  const Shape &permutation = transpose.get<TransposeAttributes>().permutation;
  SliceAttributes inner = outer;
  for (size_t i = 0; i < permutation.size(); ++i) {
    inner.starts[permutation[i]] = outer.starts[i];
    inner.sizes[permutation[i]] = outer.sizes[i];
    inner.steps[permutation[i]] = outer.steps[i];
  }
  return builder.transpose(builder.create(Op::slice, {transpose.operand(0)}, inner)->result(), permutation);
}

Value *simplifySlice(const Node &node, Builder &builder) {
  Value *x = node.operand(0);
  const auto &own = node.get<SliceAttributes>();
  bool isForward = llvm::all_of(own.steps, [](int64_t step) { return step > 0; });
  if (isForward && llvm::equal(own.sizes, x->type().shape()))
    return x;
  if (Node *inner = definedBy(x, Op::slice); inner && node.result()->type().elements() > 0)
    return composeSlices(node, *inner, builder);
  if (Node *transpose = definedBy(x, Op::transpose); transpose && isOnlySliced(x))
    return sliceBeforeTranspose(node, *transpose, builder);
  return nullptr;
}

Value *simplifyPad(const Node &node) {
  return node.operand(0)->type() == node.result()->type() ? node.operand(0) : nullptr;
}

/// Indices start, start + step, ... with step > 0, all inside [0, size); nullopt otherwise.
std::optional<std::pair<int64_t, int64_t>> ascendingRun(const Dense &indices, int64_t count, int64_t size) {
  auto at = [&](int64_t i) { return indices.integerAt(i) < 0 ? indices.integerAt(i) + size : indices.integerAt(i); };
  if (count == 0 || (count > 1 && indices.storedElements() == 1))
    return std::nullopt;
  int64_t start = at(0), step = count > 1 ? at(1) - start : 1;
  if (start < 0 || start >= size || step <= 0 || step >= size + (count == 1))
    return std::nullopt;
  for (int64_t i = 1; i < count; ++i)
    if (at(i) != at(i - 1) + step || at(i) >= size)
      return std::nullopt;
  return std::pair(start, step);
}

Value *gatherAsSlice(const Node &node, Builder &builder) {
  Value *x = node.operand(0);
  const Dense *indices = constantOf(node.operand(1));
  int64_t axis = node.get<AxisAttributes>().axis;
  int64_t count = node.operand(1)->type().elements();
  auto run = indices ? ascendingRun(*indices, count, x->type().dim(axis)) : std::nullopt;
  if (!run)
    return nullptr;
  SliceAttributes slice{Shape(x->type().rank(), 0), dimsOf(x), Shape(x->type().rank(), 1)};
  slice.starts[axis] = run->first;
  slice.sizes[axis] = count;
  slice.steps[axis] = run->second;
  return builder.reshape(builder.create(Op::slice, {x}, slice)->result(), node.result()->type().shape());
}

/// Handles reductions over no axes or over axes of size 1.
Value *simplifyReduction(const Node &node, Builder &builder) {
  Value *x = node.operand(0);
  if (x->type().elements() != node.result()->type().elements() || x->type().elements() == 0)
    return nullptr;
  return builder.reshape(x, node.result()->type().shape());
}

} // namespace

Value *canonicalizeShape(Node &node, Builder &builder) {
  switch (node.op()) {
  case Op::broadcast: return simplifyBroadcast(node, builder);
  case Op::reshape: return simplifyReshape(node, builder);
  case Op::transpose: return simplifyTranspose(node, builder);
  case Op::slice: return simplifySlice(node, builder);
  case Op::pad: return simplifyPad(node);
  case Op::gather: return gatherAsSlice(node, builder);
  case Op::concat: return node.operandCount() == 1 ? node.operand(0) : nullptr;
  case Op::reduceSum:
  case Op::reduceMax:
  case Op::reduceMin:
  case Op::reduceProd: return simplifyReduction(node, builder);
  default: return nullptr;
  }
}

} // namespace fsdpc
