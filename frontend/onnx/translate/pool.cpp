// Pooling over windows, and over entire planes.
#include "frontend/onnx/translate/root.h"
#include "frontend/onnx/translate/table.h"
#include "frontend/onnx/translate/window.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>

namespace fsdpc {

namespace {

/// ceil_mode rounds the number of windows up, but omits a window that would start in the padding after the input.
/// Returns the number of elements by which the last windows extend beyond the padded input.
Shape reachOfCeilMode(const WindowAttributes &w, llvm::ArrayRef<int64_t> spatial) {
  Shape reach(spatial.size(), 0);
  for (size_t i = 0; i < spatial.size(); ++i) {
    int64_t padded = spatial[i] + w.padsBefore[i] + w.padsAfter[i];
    int64_t steps = llvm::divideCeilSigned(padded - w.extent(i), w.strides[i]);
    if (steps * w.strides[i] >= spatial[i] + w.padsBefore[i])
      --steps;
    reach[i] = steps < 0 ? 0 : std::max<int64_t>(0, steps * w.strides[i] + w.extent(i) - padded);
  }
  return reach;
}

/// Makes the pads elements of x, so that they count in a mean but elements beyond them do not.
Value *withPadsAsElements(NodeTranslation &t, Value *x, PoolAttributes &pool) {
  PadAttributes pad;
  pad.before = {0, 0};
  pad.after = {0, 0};
  pad.before.append(pool.padsBefore.begin(), pool.padsBefore.end());
  pad.after.append(pool.padsAfter.begin(), pool.padsAfter.end());
  pad.interior.assign(pad.before.size(), 0);
  pool.padsBefore.assign(pool.padsBefore.size(), 0);
  pool.padsAfter.assign(pool.padsAfter.size(), 0);
  pool.countIncludePad = false;
  return t.make(Op::pad, {x}, std::move(pad));
}

struct Pooled {
  Value *x; ///< input 0, possibly with the pads as elements
  PoolAttributes attributes;
};

Pooled poolOf(NodeTranslation &t, bool countIncludePad) {
  Value *x = t.input(0);
  if (x->type().rank() < 3)
    t.reject(toString(x->type()) + " has no spatial axes");
  WindowAttributes window = windowOf(t, t.integers("kernel_shape"));
  PoolAttributes attributes;
  attributes.kernel = window.kernel;
  attributes.strides = window.strides;
  attributes.dilations = window.dilations;
  attributes.padsBefore = window.padsBefore;
  attributes.padsAfter = window.padsAfter;
  attributes.countIncludePad = countIncludePad;
  if (t.integer("ceil_mode", 0) == 0)
    return {x, attributes};
  Shape reach = reachOfCeilMode(window, x->type().shape().drop_front(2));
  if (countIncludePad && llvm::any_of(reach, [](int64_t elements) { return elements > 0; }))
    x = withPadsAsElements(t, x, attributes);
  for (size_t i = 0; i < reach.size(); ++i)
    attributes.padsAfter[i] += reach[i];
  return {x, attributes};
}

/// Positions in the entire tensor, from those in a plane.
Value *flatIndices(NodeTranslation &t, Value *inPlane, const Type &x) {
  int64_t plane = 1;
  for (int64_t dim : x.shape().drop_front(2))
    plane *= dim;
  Shape planes(x.rank(), 1);
  planes[0] = x.dim(0);
  planes[1] = x.dim(1);
  Value *image = t.iota(planes, 0, 0, static_cast<double>(plane * x.dim(1)));
  Value *start = t.binary(Op::add, image, t.iota(planes, 1, 0, static_cast<double>(plane)));
  return t.binary(Op::add, t.cast(inPlane, DType::i64), start);
}

void maxPool(NodeTranslation &t) {
  if (t.wantsOutput(1) && t.integer("storage_order", 0) != 0)
    t.reject("indices in column-major order (storage_order=1) are not supported");
  Pooled pooled = poolOf(t, false);
  Node *node = t.makeNode(Op::maxPool, {pooled.x}, std::move(pooled.attributes));
  t.setOutput(0, node->result(0));
  if (t.wantsOutput(1))
    t.setOutput(1, flatIndices(t, node->result(1), pooled.x->type()));
}

void averagePool(NodeTranslation &t) {
  Pooled pooled = poolOf(t, t.integer("count_include_pad", 0) != 0);
  t.setOutput(0, t.make(Op::averagePool, {pooled.x}, std::move(pooled.attributes)));
}

/// |x| to the power p.
Value *powerOf(NodeTranslation &t, Value *x, int64_t p) {
  if (p < 1)
    t.reject("p=" + llvm::Twine(p) + " is not supported");
  if (p == 2)
    return t.binary(Op::mul, x, x);
  Value *size = t.unary(Op::abs, x);
  return p == 1 ? size : t.binary(Op::pow, size, static_cast<double>(p));
}

/// Padding adds zeros to a sum, so the sum is the mean that counts padding, times the number of kernel elements.
void lpPool(NodeTranslation &t) {
  int64_t p = t.integer("p", 2);
  Pooled pooled = poolOf(t, false);
  pooled.attributes.countIncludePad = true;
  double area = 1;
  for (int64_t size : pooled.attributes.kernel)
    area *= static_cast<double>(size);
  Value *mean = t.make(Op::averagePool, {powerOf(t, pooled.x, p)}, std::move(pooled.attributes));
  t.setOutput(0, rootOfSum(t, t.binary(Op::mul, mean, area), p));
}

Shape spatialAxes(NodeTranslation &t) {
  Shape axes = allAxes(t.input(0)->type().rank());
  if (axes.size() < 3)
    t.reject(toString(t.input(0)->type()) + " has no spatial axes");
  axes.erase(axes.begin(), axes.begin() + 2);
  return axes;
}

void globalAveragePool(NodeTranslation &t) { t.setOutput(0, t.mean(t.input(0), spatialAxes(t), true)); }
void globalMaxPool(NodeTranslation &t) { t.setOutput(0, t.reduce(Op::reduceMax, t.input(0), spatialAxes(t), true)); }
void globalLpPool(NodeTranslation &t) {
  int64_t p = t.integer("p", 2);
  Value *sum = t.reduce(Op::reduceSum, powerOf(t, t.input(0), p), spatialAxes(t), true);
  t.setOutput(0, rootOfSum(t, sum, p));
}

constexpr TranslationRow rows[] = {
    {"AveragePool", averagePool},
    {"GlobalAveragePool", globalAveragePool},
    {"GlobalLpPool", globalLpPool},
    {"GlobalMaxPool", globalMaxPool},
    {"LpPool", lpPool},
    {"MaxPool", maxPool},
};

} // namespace

TranslationRows poolTranslations() { return rows; }

} // namespace fsdpc
