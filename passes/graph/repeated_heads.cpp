#include "passes/graph/repeated_heads.h"

#include "ir/ops/attributes.h"
#include "passes/graph/match.h"
#include "passes/graph/swap_reshape.h"
#include "llvm/ADT/STLExtras.h"

#include <numeric>

namespace fsdpc {

namespace {

// One from the exporter, one or two from the recogniser.
constexpr int maxTransposes = 4;

/// x = transpose base {permutation}, with all transposes at the end of x merged.
struct Transposed {
  Value *base;
  Shape permutation;

  explicit Transposed(Value *x) : base(x), permutation(x->type().rank()) {
    std::iota(permutation.begin(), permutation.end(), 0);
    for (int i = 0; i < maxTransposes; ++i)
      if (Node *transpose = definedBy(base, Op::transpose)) {
        for (int64_t &axis : permutation)
          axis = transpose->get<TransposeAttributes>().permutation[axis];
        base = transpose->operand(0);
      }
  }
};

/// The one axis along which a broadcast repeats its operand; -1 if there are several.
int64_t repeatedAxis(const Node &broadcast) {
  llvm::ArrayRef<int64_t> from = broadcast.operand(0)->type().shape(), to = broadcast.result()->type().shape();
  int64_t found = -1, added = static_cast<int64_t>(to.size() - from.size());
  for (int64_t axis = 0; axis < static_cast<int64_t>(to.size()); ++axis) {
    if (to[axis] == (axis < added ? 1 : from[axis - added]))
      continue;
    if (found >= 0)
      return -1;
    found = axis;
  }
  return found;
}

/// Inserts the reshape before transposes where possible, since attention matches them.
Value *reshaped(Value *x, llvm::ArrayRef<int64_t> shape, Builder &builder) {
  x = belowReshapes(x);
  if (Node *transpose = definedBy(x, Op::transpose))
    if (Value *swapped = reshapeBeforeTranspose(*transpose, shape, builder))
      return swapped;
  return builder.reshape(x, shape);
}

} // namespace

Value *withoutRepetition(Value *x, int64_t axis, Builder &builder) {
  Transposed transposed(x);
  axis = transposed.permutation[axis];
  Node *broadcast = definedBy(belowReshapes(transposed.base), Op::broadcast);
  int64_t repeated = broadcast ? repeatedAxis(*broadcast) : -1;
  if (repeated < 0)
    return nullptr;
  llvm::ArrayRef<int64_t> dims = broadcast->result()->type().shape();
  Shape shape(transposed.base->type().shape());
  int64_t times = dims[repeated];
  if (times == 0 || shape[axis] % times != 0)
    return nullptr;
  shape[axis] /= times;
  auto rank = static_cast<int64_t>(shape.size()), ofBroadcast = static_cast<int64_t>(dims.size());
  if (productOf(dims, 0, repeated) != productOf(shape, 0, axis + 1) ||
      productOf(dims, repeated + 1, ofBroadcast) != productOf(shape, axis + 1, rank))
    return nullptr;
  return builder.transpose(reshaped(broadcast->operand(0), shape, builder), transposed.permutation);
}

} // namespace fsdpc
