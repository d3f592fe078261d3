// Ops that only move elements.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <limits>

namespace fsdpc {

namespace {

/// The dims that a Reshape requests: 0 keeps a dim (unless allowzero), and one -1 gets the remaining elements.
Shape requestedShape(NodeTranslation &t) {
  llvm::ArrayRef<int64_t> from = t.input(0)->type().shape();
  Shape shape = t.constantIntegers(1, "the shape");
  int64_t known = 1, open = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    bool keeps = shape[i] == 0 && t.integer("allowzero", 0) == 0;
    if (keeps && i >= from.size())
      t.reject("dim " + llvm::Twine(i) + " is to be kept, but the input has rank " + llvm::Twine(from.size()));
    if (keeps)
      shape[i] = from[i];
    if (shape[i] < -1 || (shape[i] == -1 && open >= 0))
      t.reject("bad shape");
    if (shape[i] == -1)
      open = static_cast<int64_t>(i);
    else if (llvm::MulOverflow(known, shape[i], known))
      t.reject("the shape is too large");
  }
  int64_t elements = t.input(0)->type().elements();
  if (open >= 0 && (known == 0 || elements % known != 0))
    t.reject(toString(t.input(0)->type()) + " does not divide into " + llvm::Twine(known) + " parts");
  if (open >= 0)
    shape[open] = elements / known;
  return shape;
}

void reshape(NodeTranslation &t) { t.setOutput(0, t.reshape(t.input(0), requestedShape(t))); }

void flatten(NodeTranslation &t) {
  const Type &type = t.input(0)->type();
  int64_t axis = t.integer("axis", 1);
  axis = axis == type.rank() ? axis : t.normalAxis(axis, type.rank());
  std::optional<int64_t> rows = checkedElements(type.shape().take_front(axis));
  std::optional<int64_t> columns = checkedElements(type.shape().drop_front(axis));
  if (!rows || !columns)
    t.reject(toString(type) + " has too many elements on one side of axis " + llvm::Twine(axis));
  t.setOutput(0, t.reshape(t.input(0), {*rows, *columns}));
}

void squeeze(NodeTranslation &t) {
  const Type &type = t.input(0)->type();
  Shape axes = t.axesFrom(1, "axes", type.rank()), shape;
  for (int64_t i = 0; i < type.rank(); ++i) {
    bool isDropped = axes.empty() ? type.dim(i) == 1 : llvm::is_contained(axes, i);
    if (isDropped && type.dim(i) != 1)
      t.reject("axis " + llvm::Twine(i) + " has size " + llvm::Twine(type.dim(i)));
    if (!isDropped)
      shape.push_back(type.dim(i));
  }
  t.setOutput(0, t.reshape(t.input(0), shape));
}

void unsqueeze(NodeTranslation &t) {
  const Type &type = t.input(0)->type();
  int64_t added = t.hasInput(1) ? t.input(1)->type().elements() : static_cast<int64_t>(t.integers("axes").size());
  Shape axes = t.axesFrom(1, "axes", type.rank() + added), shape;
  int64_t next = 0;
  for (int64_t i = 0; i < type.rank() + added; ++i)
    shape.push_back(llvm::is_contained(axes, i) ? 1 : type.dim(next++));
  t.setOutput(0, t.reshape(t.input(0), shape));
}

void transpose(NodeTranslation &t) {
  int64_t rank = t.input(0)->type().rank();
  Shape permutation = t.integers("perm");
  if (!t.has("perm")) {
    permutation = allAxes(rank);
    std::reverse(permutation.begin(), permutation.end());
  }
  Shape sorted = permutation;
  llvm::sort(sorted);
  if (sorted != allAxes(rank))
    t.reject("perm is no permutation of the axes of " + toString(t.input(0)->type()));
  t.setOutput(0, t.transpose(t.input(0), permutation));
}

void expand(NodeTranslation &t) {
  Shape shape = t.constantIntegers(1, "the shape");
  t.setOutput(0, t.broadcast(t.input(0), t.broadcastShape(t.input(0)->type().shape(), shape)));
}

/// Each dim d that repeats r times becomes [r, d] and then r * d.
void tile(NodeTranslation &t) {
  llvm::ArrayRef<int64_t> from = t.input(0)->type().shape();
  Shape repeats = t.constantIntegers(1, "the repeats"), split, repeated, result;
  if (repeats.size() != from.size())
    t.reject(llvm::Twine(repeats.size()) + " repeats for rank " + llvm::Twine(from.size()));
  for (size_t i = 0; i < from.size(); ++i) {
    // An axis of its own only where an axis of several elements is repeated: targets limit the rank.
    if (repeats[i] != 1 && from[i] != 1) {
      split.push_back(1);
      repeated.push_back(repeats[i]);
    }
    split.push_back(from[i]);
    repeated.push_back(from[i] == 1 ? repeats[i] : from[i]);
    result.push_back(repeats[i] * from[i]);
  }
  t.setOutput(0, result == Shape(from) ? t.input(0)
                                       : t.reshape(t.broadcast(t.reshape(t.input(0), split), repeated), result));
}

void concat(NodeTranslation &t) {
  llvm::SmallVector<Value *, 4> parts;
  int64_t axis = t.normalAxis(t.integer("axis", 0), t.input(0)->type().rank());
  for (unsigned i = 0; i < t.inputCount(); ++i) {
    const Type &type = t.input(i)->type();
    if (axis >= type.rank() || type.dim(axis) != 0)
      parts.push_back(t.input(i));
  }
  if (parts.size() < 2)
    return t.setOutput(0, parts.empty() ? t.input(0) : parts[0]);
  t.setOutput(0, t.make(Op::concat, parts, AxisAttributes{axis}));
}

void split(NodeTranslation &t) {
  Value *x = t.input(0);
  int64_t axis = t.normalAxis(t.integer("axis", 0), x->type().rank()), size = x->type().dim(axis);
  int64_t count = t.node.output_size();
  Shape sizes;
  if (t.hasInput(1))
    sizes = t.constantIntegers(1, "the split");
  else
    for (int64_t i = 0, part = (size + count - 1) / count; i < count; ++i)
      sizes.push_back(std::max<int64_t>(0, std::min(part, size - i * part)));
  if (static_cast<int64_t>(sizes.size()) != count)
    t.reject(llvm::Twine(sizes.size()) + " sizes for " + llvm::Twine(count) + " outputs");
  int64_t start = 0;
  for (int64_t i = 0; i < count; start += sizes[i++]) {
    if (sizes[i] < 0 || sizes[i] > size - start)
      t.reject("the parts do not add up to " + llvm::Twine(size));
    if (t.wantsOutput(i))
      t.setOutput(i, t.slice(x, axis, start, sizes[i]));
  }
  if (start != size)
    t.reject("the parts add up to " + llvm::Twine(start) + " instead of " + llvm::Twine(size));
}

/// start and end, clamped like numpy's slices.
struct Extent {
  int64_t start, size;
};
Extent clampedExtent(int64_t start, int64_t end, int64_t step, int64_t dim) {
  auto fromEnd = [&](int64_t at) { return at < 0 && at >= -dim ? at + dim : at; };
  start = step > 0 ? std::clamp<int64_t>(fromEnd(start), 0, dim) : std::clamp<int64_t>(fromEnd(start), -1, dim - 1);
  end = step > 0 ? std::clamp<int64_t>(fromEnd(end), 0, dim) : std::clamp<int64_t>(fromEnd(end), -1, dim - 1);
  int64_t distance = step > 0 ? end - start : start - end;
  // With a step below -2^62 only the first element is reached.
  int64_t stride = step > 0 ? step : -std::max(step, -std::numeric_limits<int64_t>::max());
  return {start, distance <= 0 ? 0 : 1 + (distance - 1) / stride};
}

void slice(NodeTranslation &t) {
  Value *x = t.input(0);
  const Type &type = x->type();
  Shape starts = t.constantIntegers(1, "the starts"), ends = t.constantIntegers(2, "the ends");
  Shape axes = t.hasInput(3) ? t.constantIntegers(3, "the axes") : allAxes(static_cast<int64_t>(starts.size()));
  Shape steps = t.hasInput(4) ? t.constantIntegers(4, "the steps") : Shape(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    t.reject("starts, ends, axes and steps differ in length");
  SliceAttributes attributes;
  attributes.starts.assign(type.rank(), 0);
  attributes.sizes.assign(type.shape().begin(), type.shape().end());
  attributes.steps.assign(type.rank(), 1);
  for (size_t i = 0; i < starts.size(); ++i) {
    int64_t axis = t.normalAxis(axes[i], type.rank());
    if (steps[i] == 0)
      t.reject("a step is 0");
    Extent extent = clampedExtent(starts[i], ends[i], steps[i], type.dim(axis));
    attributes.starts[axis] = extent.size ? extent.start : 0;
    attributes.sizes[axis] = extent.size;
    attributes.steps[axis] = extent.size > 1 ? steps[i] : 1;
  }
  bool isFull =
      attributes.sizes == Shape(type.shape()) && llvm::all_of(attributes.steps, [](int64_t s) { return s == 1; });
  t.setOutput(0, isFull ? x : t.make(Op::slice, {x}, std::move(attributes)));
}

/// Keeps the diagonal `k` and the elements above (upper) or below it; 0 elsewhere.
void trilu(NodeTranslation &t) {
  Value *x = t.input(0);
  const Type &type = x->type();
  if (type.rank() < 2)
    t.reject("its input has rank " + llvm::Twine(type.rank()));
  double k = t.hasInput(1) ? static_cast<double>(t.constantInteger(1, "k")) : 0;
  Shape plane = {type.dim(-2), type.dim(-1)};
  Value *column = t.iota(plane, 1), *diagonal = t.binary(Op::add, t.iota(plane, 0), k);
  bool upper = t.integer("upper", 1) != 0;
  Value *keep = upper ? t.binary(Op::lessEqual, diagonal, column) : t.binary(Op::lessEqual, column, diagonal);
  t.setOutput(0, t.select(keep, x, t.constantLike(x, 0)));
}

/// [N, C, H, W] -> [N, C / b^2, H * b, W * b]
void depthToSpace(NodeTranslation &t) {
  Value *x = t.input(0);
  const Type &type = x->type();
  int64_t block = t.integer("blocksize", 0);
  if (type.rank() != 4 || block < 1 || block > type.dim(1) || type.dim(1) / block % block != 0 ||
      type.dim(1) % block != 0)
    t.reject("blocksize " + llvm::Twine(block) + " does not fit " + toString(type));
  int64_t n = type.dim(0), c = type.dim(1) / (block * block), h = type.dim(2), w = type.dim(3);
  bool columnsFirst = t.text("mode", "DCR") == "CRD";
  Value *parts = columnsFirst ? t.transpose(t.reshape(x, {n, c, block, block, h, w}), {0, 1, 4, 2, 5, 3})
                              : t.transpose(t.reshape(x, {n, block, block, c, h, w}), {0, 3, 4, 1, 5, 2});
  t.setOutput(0, t.reshape(parts, {n, c, h * block, w * block}));
}

/// [N, C, H, W] -> [N, C * b^2, H / b, W / b]
void spaceToDepth(NodeTranslation &t) {
  Value *x = t.input(0);
  const Type &type = x->type();
  int64_t block = t.integer("blocksize", 0);
  if (type.rank() != 4 || block < 1 || type.dim(2) % block != 0 || type.dim(3) % block != 0)
    t.reject("blocksize " + llvm::Twine(block) + " does not fit " + toString(type));
  int64_t n = type.dim(0), c = type.dim(1), h = type.dim(2) / block, w = type.dim(3) / block;
  Value *parts = t.transpose(t.reshape(x, {n, c, h, block, w, block}), {0, 3, 5, 1, 2, 4});
  t.setOutput(0, t.reshape(parts, {n, c * block * block, h, w}));
}

/// The first lengths[b] elements along the time axis of batch b, in reverse order. The rest is unchanged.
void reverseSequence(NodeTranslation &t) {
  Value *x = t.input(0), *lengths = t.cast(t.input(1), DType::i64);
  int64_t rank = x->type().rank();
  int64_t time = t.normalAxis(t.integer("time_axis", 0), rank), batch = t.normalAxis(t.integer("batch_axis", 1), rank);
  if (time + batch != 1 || lengths->type().shape() != llvm::ArrayRef<int64_t>(x->type().dim(batch)))
    t.reject("time_axis and batch_axis must be 0 and 1, and lengths one number for each batch");
  Value *batches = t.moveAxis(x, batch, 0);
  Shape plane = {batches->type().dim(0), batches->type().dim(1)};
  Value *at = t.iota(plane, 1), *count = t.broadcast(t.reshape(lengths, {plane[0], 1}), plane);
  Value *mirrored = t.binary(Op::sub, t.binary(Op::sub, count, 1), at);
  Value *from = t.select(t.binary(Op::less, at, count), mirrored, at);
  Value *tuples = t.reshape(from, {plane[0], plane[1], 1});
  Value *reversed = t.make(Op::gatherNd, {batches, tuples}, GatherNdAttributes{1});
  t.setOutput(0, t.moveAxis(reversed, 0, batch));
}

constexpr TranslationRow rows[] = {
    {"ReverseSequence", reverseSequence},
    {"Concat", concat},
    {"DepthToSpace", depthToSpace},
    {"Expand", expand},
    {"Flatten", flatten},
    {"Reshape", reshape},
    {"Slice", slice},
    {"SpaceToDepth", spaceToDepth},
    {"Split", split},
    {"Squeeze", squeeze},
    {"Tile", tile},
    {"Transpose", transpose},
    {"Trilu", trilu},
    {"Unsqueeze", unsqueeze},
};

} // namespace

TranslationRows shapeTranslations() { return rows; }

} // namespace fsdpc
