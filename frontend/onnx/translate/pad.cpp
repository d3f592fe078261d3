// Pad: adds constants around the input, or repeats its elements (edge, reflect, wrap).
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"
#include <algorithm>

namespace fsdpc {

namespace {

// Keeps sums of a dim and two pads far from overflow.
constexpr int64_t largestPad = int64_t(1) << 31;
// Maximum repetitions of the input along one axis; a real model has two.
constexpr size_t maxPieces = 1024;

/// Elements to add on both ends of an axis.
struct AxisPads {
  int64_t axis, before, after;
};

/// `count` elements of the input from `start` on, forwards, backwards (step -1) or one of them repeated (step 0).
struct Piece {
  int64_t start, step, count;
};

/// Crops `x` by the negative pads and returns the positive ones.
std::vector<AxisPads> padsAfterCuts(NodeTranslation &t, Value *&x) {
  int64_t rank = x->type().rank();
  Shape pads = t.constantIntegers(1, "the pads");
  Shape axes = t.hasInput(3) ? t.constantIntegers(3, "the axes") : allAxes(rank);
  if (pads.size() != 2 * axes.size())
    t.reject(llvm::Twine(pads.size()) + " pads for " + llvm::Twine(axes.size()) + " axes");
  std::vector<AxisPads> result;
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t axis = t.normalAxis(axes[i], rank), before = pads[i], after = pads[axes.size() + i];
    if (std::max(std::abs(before / 2), std::abs(after / 2)) >= largestPad / 2)
      t.reject("pads of " + llvm::Twine(before) + " and " + llvm::Twine(after) + " elements");
    if (llvm::any_of(result, [axis](const AxisPads &pads) { return pads.axis == axis; }))
      t.reject("an axis is listed twice");
    int64_t cutBefore = std::max<int64_t>(0, -before), cutAfter = std::max<int64_t>(0, -after);
    int64_t size = x->type().dim(axis) - cutBefore - cutAfter;
    if (size < 0)
      t.reject("negative pads cut more than there is on axis " + llvm::Twine(axis));
    x = t.slice(x, axis, size ? cutBefore : 0, size);
    result.push_back({axis, std::max<int64_t>(0, before), std::max<int64_t>(0, after)});
  }
  return result;
}

Value *padByConstant(NodeTranslation &t, Value *x, llvm::ArrayRef<AxisPads> pads) {
  PadAttributes attributes;
  for (Shape *field : {&attributes.before, &attributes.after, &attributes.interior})
    field->assign(x->type().rank(), 0);
  attributes.value = t.hasInput(2) ? t.constantReal(2, "the value") : 0;
  for (const AxisPads &axis : pads) {
    attributes.before[axis.axis] = axis.before;
    attributes.after[axis.axis] = axis.after;
  }
  bool adds = llvm::any_of(pads, [](const AxisPads &axis) { return axis.before > 0 || axis.after > 0; });
  return adds ? t.make(Op::pad, {x}, std::move(attributes)) : x;
}

/// The piece that begins at element `at` of 0, 1, ..., dim - 1, extended without end on both sides as `mode` specifies.
Piece pieceAt(llvm::StringRef mode, int64_t at, int64_t dim) {
  if (mode == "edge" && at < 0)
    return {0, 0, -at};
  if (mode == "edge" && at >= dim)
    return {dim - 1, 0, largestPad};
  int64_t period = mode == "reflect" ? 2 * dim - 2 : dim;
  int64_t place = ((at % period) + period) % period;
  return place < dim ? Piece{place, 1, dim - place} : Piece{period - place, -1, period - place};
}

Value *padByPieces(NodeTranslation &t, Value *x, const AxisPads &pads, llvm::StringRef mode) {
  int64_t dim = x->type().dim(pads.axis), end = dim + pads.after;
  if (pads.before == 0 && pads.after == 0)
    return x;
  if (dim == 0)
    t.reject("axis " + llvm::Twine(pads.axis) + " has no elements to pad with");
  // A single element cannot be reflected and is repeated as an edge.
  llvm::StringRef rule = dim == 1 ? "edge" : mode;
  llvm::SmallVector<Value *, 4> parts;
  for (int64_t at = -pads.before; at < end;) {
    Piece piece = pieceAt(rule, at, dim);
    piece.count = std::min(piece.count, end - at);
    Value *part =
        t.slice(x, pads.axis, piece.start, piece.step == 0 ? 1 : piece.count, piece.step == 0 ? 1 : piece.step);
    Shape shape(part->type().shape());
    shape[pads.axis] = piece.count;
    parts.push_back(t.broadcast(part, shape));
    at += piece.count;
    if (parts.size() > maxPieces)
      t.reject("the pads repeat axis " + llvm::Twine(pads.axis) + " more than " + llvm::Twine(maxPieces) + " times");
  }
  return t.make(Op::concat, parts, AxisAttributes{pads.axis});
}

/// Negative pads crop, positive ones add elements.
void pad(NodeTranslation &t) {
  Value *x = t.input(0);
  std::string mode = t.text("mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap")
    t.reject("mode='" + mode + "' is not supported");
  std::vector<AxisPads> pads = padsAfterCuts(t, x);
  if (mode == "constant")
    return t.setOutput(0, padByConstant(t, x, pads));
  for (const AxisPads &axis : pads)
    x = padByPieces(t, x, axis, mode);
  t.setOutput(0, x);
}

constexpr TranslationRow rows[] = {{"Pad", pad}};

} // namespace

TranslationRows padTranslations() { return rows; }

} // namespace fsdpc
