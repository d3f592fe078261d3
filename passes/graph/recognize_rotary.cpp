#include "ir/ops/attributes.h"
#include "passes/graph/recognizers.h"
#include "llvm/ADT/STLExtras.h"

#include <numeric>

namespace fsdpc {

namespace {

using Rotation = RotaryRecognizer::Rotation;

constexpr int64_t maxDims = 4; // of the op

Shape identityOf(int64_t rank) {
  Shape permutation(rank);
  std::iota(permutation.begin(), permutation.end(), 0);
  return permutation;
}

bool hasNoGaps(const Node &slice) {
  return llvm::all_of(slice.get<SliceAttributes>().steps, [](int64_t step) { return step == 1; });
}

/// value = transpose (slice base at `starts`, every element) {permutation}. Without slice and transpose, value is the
/// base.
struct Part {
  Value *base;
  Shape permutation, starts;

  explicit Part(Value *value)
      : base(value), permutation(identityOf(value->type().rank())), starts(value->type().rank(), 0) {
    if (Node *transpose = definedBy(base, Op::transpose)) {
      permutation = transpose->get<TransposeAttributes>().permutation;
      base = transpose->operand(0);
    }
    Node *slice = definedBy(base, Op::slice);
    if (!slice || !hasNoGaps(*slice))
      return;
    starts = slice->get<SliceAttributes>().starts;
    base = slice->operand(0);
  }
};

/// The offset of `value` on the last axis of x, if it is a slice of x along that axis only.
std::optional<int64_t> offsetIn(Value *x, Value *value) {
  int64_t last = x->type().rank() - 1;
  if (value->type().rank() != last + 1 || value->type().shape().drop_back() != x->type().shape().drop_back())
    return std::nullopt;
  if (Node *slice = definedBy(value, Op::slice); slice && slice->operand(0) == x && hasNoGaps(*slice))
    return slice->get<SliceAttributes>().starts[last];
  // Both are slices of the same tensor: canonicalize merges two slices into one.
  Part whole(x), part(value);
  if (whole.base != part.base || whole.permutation != part.permutation)
    return std::nullopt;
  int64_t axis = whole.permutation[last], offset = part.starts[axis] - whole.starts[axis];
  part.starts[axis] = whole.starts[axis];
  return part.starts == whole.starts ? std::optional(offset) : std::nullopt;
}

/// True if `value` is (-second half of x, first half of x).
bool isRotatedHalf(Value *x, const Value *value) {
  const Node *concat = definedBy(value, Op::concat);
  int64_t last = x->type().rank() - 1;
  if (!concat || concat->operandCount() != 2 || concat->get<AxisAttributes>().axis != last)
    return false;
  Scaled second = takeScaleOff(concat->operand(0));
  Value *first = concat->operand(1);
  int64_t half = x->type().dim(last) / 2;
  return second.factor == -1 && second.base->type() == first->type() && first->type().dim(last) == half &&
         2 * half == x->type().dim(last) && offsetIn(x, second.base) == half && offsetIn(x, first) == 0;
}

/// The value that is broadcast to the shape of x, if it has the full last axis; null otherwise.
Value *tableOf(Value *factor, const Value *x) {
  Value *table = belowBroadcasts(factor);
  return table->type().rank() > 0 && table->type().dim(-1) == x->type().dim(-1) ? table : nullptr;
}

// ---- x * cos + (-second half of x, first half of x) * sin

/// `plain` and `turned` are the products; x is null if they do not match.
Rotation rotationOf(const Node &plain, const Node &turned) {
  for (unsigned i = 0; i < 2; ++i)
    for (unsigned j = 0; j < 2; ++j) {
      Value *x = plain.operand(i);
      if (x->type().rank() < 1 || x->type().rank() > maxDims || !isRotatedHalf(x, turned.operand(j)))
        continue;
      Value *cos = tableOf(plain.operand(1 - i), x), *sin = tableOf(turned.operand(1 - j), x);
      if (cos && sin && cos->type() == sin->type())
        return {x, cos, sin};
    }
  return {};
}

Rotation rotationOfSum(const Node &sum) {
  const Node *products[] = {definedBy(sum.operand(0), Op::mul), definedBy(sum.operand(1), Op::mul)};
  if (!products[0] || !products[1])
    return {};
  Rotation rotation = rotationOf(*products[0], *products[1]);
  return rotation.x ? rotation : rotationOf(*products[1], *products[0]);
}

// ---- (first * cos - second * sin, second * cos + first * sin), first and second being the halves of x

struct Halves {
  Value *first = nullptr, *second = nullptr, *cos = nullptr, *sin = nullptr;
};

bool isProductOf(const Value *value, const Value *a, const Value *b) {
  const Node *product = definedBy(value, Op::mul);
  return product && ((product->operand(0) == a && product->operand(1) == b) ||
                     (product->operand(0) == b && product->operand(1) == a));
}

/// All matches of the concat. Swapping the halves together with cos and sin gives another match.
llvm::SmallVector<Halves, 4> halvesOf(const Node &concat) {
  llvm::SmallVector<Halves, 4> readings;
  const Node *low = definedBy(concat.operand(0), Op::sub), *high = definedBy(concat.operand(1), Op::add);
  const Node *left = low ? definedBy(low->operand(0), Op::mul) : nullptr;
  const Node *right = low ? definedBy(low->operand(1), Op::mul) : nullptr;
  for (unsigned i = 0; i < 4 && high && left && right; ++i) {
    Halves halves{left->operand(i % 2), right->operand(i / 2), left->operand(1 - i % 2), right->operand(1 - i / 2)};
    for (unsigned j = 0; j < 2; ++j)
      if (isProductOf(high->operand(j), halves.second, halves.cos) &&
          isProductOf(high->operand(1 - j), halves.first, halves.sin))
        readings.push_back(halves);
  }
  return readings;
}

/// The tensor, or the slice of it, with these halves; null if they are not adjacent.
Value *joined(const Halves &halves, Builder &builder) {
  Part part(halves.first), second(halves.second);
  int64_t axis = part.permutation.back(), half = halves.first->type().dim(-1);
  second.starts[axis] -= half;
  if (half == 0 || part.base != second.base || part.permutation != second.permutation || part.starts != second.starts ||
      halves.first->type() != halves.second->type())
    return nullptr;
  SliceAttributes slice{part.starts, Shape(part.base->type().rank()), Shape(part.base->type().rank(), 1)};
  for (auto [place, moved] : llvm::enumerate(part.permutation))
    slice.sizes[moved] = halves.first->type().dim(static_cast<int64_t>(place));
  slice.sizes[axis] *= 2;
  return builder.transpose(builder.create(Op::slice, {part.base}, slice)->result(), part.permutation);
}

} // namespace

/// The table for x before x was transposed.
Value *RotaryRecognizer::tableBefore(Value *table, const Shape &permutation, Builder &builder) {
  Value *&moved = movedTables[{table, std::vector<int64_t>(permutation.begin(), permutation.end())}];
  if (moved)
    return moved;
  Shape shape(permutation.size() - table->type().rank(), 1), inverse(permutation.size());
  llvm::append_range(shape, table->type().shape());
  for (size_t i = 0; i < permutation.size(); ++i)
    inverse[permutation[i]] = static_cast<int64_t>(i);
  return moved = builder.transpose(builder.reshape(table, shape), inverse);
}

/// The table for both halves, built from the table for one.
Value *RotaryRecognizer::doubled(Value *table, Builder &builder) {
  Value *&twice = movedTables[{table, {}}];
  if (!twice)
    twice = builder.create(Op::concat, {table, table}, AxisAttributes{table->type().rank() - 1})->result();
  return twice;
}

RotaryRecognizer::Rotation RotaryRecognizer::rotationOfHalves(const Node &concat, Builder &builder) {
  for (const Halves &halves : halvesOf(concat)) {
    Value *cos = tableOf(halves.cos, halves.first), *sin = tableOf(halves.sin, halves.first);
    if (!cos || !sin || !areAngles(cos, sin))
      continue;
    if (Value *x = joined(halves, builder))
      return {x, doubled(cos, builder), doubled(sin, builder)};
  }
  return {};
}

bool RotaryRecognizer::areAngles(const Value *cos, const Value *sin) const {
  return cos->type() == sin->type() && !gradients.contains(cos) && !gradients.contains(sin);
}

Value *RotaryRecognizer::recognize(Node &node, Builder &builder) {
  if ((node.op() != Op::add && node.op() != Op::concat) || !isFloat(node.result()->type().dtype()) ||
      node.result()->type().rank() > maxDims)
    return nullptr;
  int64_t last = node.result()->type().rank() - 1;
  Rotation rotation;
  if (node.op() == Op::add)
    rotation = rotationOfSum(node);
  else if (node.operandCount() == 2 && node.get<AxisAttributes>().axis == last)
    rotation = rotationOfHalves(node, builder);
  if (!rotation.x || !areAngles(rotation.cos, rotation.sin))
    return nullptr;
  Value *result = rotated(rotation, builder);
  gradients.replace(node.result(), result);
  return result;
}

/// A transpose that keeps vectors contiguous is moved after the rotation, where attention can absorb it.
Value *RotaryRecognizer::rotated(Rotation rotation, Builder &builder) {
  int64_t last = rotation.x->type().rank() - 1;
  Node *transpose = definedBy(rotation.x, Op::transpose);
  Shape permutation = identityOf(last + 1);
  if (transpose && transpose->get<TransposeAttributes>().permutation[last] == last) {
    permutation = transpose->get<TransposeAttributes>().permutation;
    rotation = {transpose->operand(0), tableBefore(rotation.cos, permutation, builder),
                tableBefore(rotation.sin, permutation, builder)};
  }
  Node *rotary = builder.create(Op::rotary, {rotation.x, rotation.cos, rotation.sin}, RotaryAttributes{});
  return builder.transpose(rotary->result(), permutation);
}

} // namespace fsdpc
