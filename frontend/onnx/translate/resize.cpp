// Resize: along each axis that changes, a gather (nearest) or a product with a matrix of constants (linear, cubic).
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"
#include <algorithm>
#include <cmath>

namespace fsdpc {

namespace {

struct ResizedAxis {
  int64_t axis, from, to;
  double scale;
};

/// Upsample (before opset 10) and Resize of opset 10 have no roi.
bool hasRoi(const NodeTranslation &t) { return t.node.op_type() == "Resize" && t.opset >= 11; }

std::vector<ResizedAxis> resizedAxes(NodeTranslation &t) {
  const Type &type = t.input(0)->type();
  Shape axes = t.has("axes") ? t.integers("axes") : allAxes(type.rank());
  unsigned scalesAt = hasRoi(t) ? 2 : 1, sizesAt = 3;
  bool bySizes = t.hasInput(sizesAt) && t.input(sizesAt)->type().elements() > 0;
  Shape sizes = bySizes ? t.constantIntegers(sizesAt, "the sizes") : Shape();
  const Dense *scales = bySizes ? nullptr : t.constantOf(t.input(scalesAt));
  if (!bySizes && !scales)
    t.reject("the scales must be constant");
  int64_t count = bySizes ? static_cast<int64_t>(sizes.size()) : t.input(scalesAt)->type().elements();
  if (count != static_cast<int64_t>(axes.size()))
    t.reject(llvm::Twine(count) + " sizes or scales for " + llvm::Twine(axes.size()) + " axes");
  std::vector<ResizedAxis> result;
  for (int64_t i = 0; i < count; ++i) {
    int64_t axis = t.normalAxis(axes[i], type.rank()), from = type.dim(axis);
    double scale = bySizes ? static_cast<double>(sizes[i]) / static_cast<double>(from) : scales->at(i);
    int64_t to = bySizes ? sizes[i] : static_cast<int64_t>(std::floor(static_cast<double>(from) * scale));
    if (from < 1 || to < 1)
      t.reject("axis " + llvm::Twine(axis) + " has or gets no elements");
    if (to != from)
      result.push_back({axis, from, to, scale});
  }
  return result;
}

/// Where in the input element `at` of the result lies.
double sourceOf(NodeTranslation &t, const ResizedAxis &a, int64_t at) {
  std::string fallback = hasRoi(t) ? "half_pixel" : "asymmetric";
  std::string mode = t.text("coordinate_transformation_mode", fallback);
  double x = static_cast<double>(at);
  if (mode == "asymmetric")
    return x / a.scale;
  if (mode == "align_corners")
    return a.to == 1 ? 0 : x * static_cast<double>(a.from - 1) / static_cast<double>(a.to - 1);
  if (mode == "pytorch_half_pixel" && a.to == 1)
    return 0;
  if (mode == "half_pixel" || mode == "pytorch_half_pixel")
    return (x + 0.5) / a.scale - 0.5;
  t.reject("coordinate_transformation_mode='" + mode + "' is not supported");
}

int64_t nearestTo(NodeTranslation &t, const ResizedAxis &a, double x) {
  std::string mode = t.text("nearest_mode", hasRoi(t) ? "round_prefer_floor" : "floor");
  double nearest = mode == "floor"                ? std::floor(x)
                   : mode == "ceil"               ? std::ceil(x)
                   : mode == "round_prefer_floor" ? std::ceil(x - 0.5)
                                                  : std::floor(x + 0.5);
  return std::clamp<int64_t>(static_cast<int64_t>(nearest), 0, a.from - 1);
}

/// Whole multiples repeat every element, whose derivative is a sum; anything else is a gather.
Value *takeNearest(NodeTranslation &t, Value *x, const ResizedAxis &a) {
  std::vector<int64_t> taken;
  for (int64_t i = 0; i < a.to; ++i)
    taken.push_back(nearestTo(t, a, sourceOf(t, a, i)));
  int64_t factor = a.to / a.from;
  bool repeats = a.to % a.from == 0;
  for (int64_t i = 0; i < a.to && repeats; ++i)
    repeats = taken[i] == i / factor;
  if (!repeats)
    return t.make(Op::gather, {x, t.integerTensor(taken)}, AxisAttributes{a.axis});
  Shape apart(x->type().shape()), repeated, result = apart;
  apart.insert(apart.begin() + a.axis + 1, 1);
  repeated = apart;
  repeated[a.axis + 1] = factor;
  result[a.axis] = a.to;
  return t.reshape(t.broadcast(t.reshape(x, apart), repeated), result);
}

/// Adds to `row` what each element of the input counts at position x.
void addWeights(NodeTranslation &t, double *row, const ResizedAxis &a, double x, llvm::StringRef mode) {
  auto add = [&](int64_t at, double weight) { row[std::clamp<int64_t>(at, 0, a.from - 1)] += weight; };
  double base = std::floor(x), r = x - base;
  int64_t at = static_cast<int64_t>(base);
  if (mode == "linear") {
    add(at, 1 - r);
    return add(at + 1, r);
  }
  double c = t.real("cubic_coeff_a", -0.75);
  auto near = [c](double d) { return ((c + 2) * d - (c + 3)) * d * d + 1; };
  auto far = [c](double d) { return ((c * d - 5 * c) * d + 8 * c) * d - 4 * c; };
  add(at - 1, far(r + 1));
  add(at, near(r));
  add(at + 1, near(1 - r));
  add(at + 2, far(2 - r));
}

Value *interpolate(NodeTranslation &t, Value *x, const ResizedAxis &a, llvm::StringRef mode) {
  std::vector<double> weights(a.to * a.from, 0);
  for (int64_t i = 0; i < a.to; ++i)
    addWeights(t, weights.data() + i * a.from, a, sourceOf(t, a, i), mode);
  Value *matrix = t.constant(Type(DType::f32, {a.to, a.from}), Dense::fromDoubles(DType::f32, weights));
  int64_t last = x->type().rank() - 1;
  Value *y = t.make(Op::matmul, {t.moveAxis(x, a.axis, last), matrix}, MatmulAttributes{false, true});
  return t.moveAxis(y, last, a.axis);
}

void resize(NodeTranslation &t) {
  std::string mode = t.text("mode", "nearest");
  if (mode != "nearest" && mode != "linear" && mode != "cubic")
    t.reject("mode='" + mode + "' is not supported");
  if (t.integer("antialias", 0) != 0 || t.integer("exclude_outside", 0) != 0 ||
      t.text("keep_aspect_ratio_policy", "stretch") != "stretch")
    t.reject("antialias, exclude_outside and keep_aspect_ratio_policy are not supported");
  Value *x = t.input(0);
  if (mode != "nearest" && x->type().dtype() != DType::f32)
    t.reject("only f32 is interpolated");
  for (const ResizedAxis &axis : resizedAxes(t))
    x = mode == "nearest" ? takeNearest(t, x, axis) : interpolate(t, x, axis, mode);
  t.setOutput(0, x);
}

constexpr TranslationRow rows[] = {{"Resize", resize}};

} // namespace

TranslationRows resizeTranslations() { return rows; }

} // namespace fsdpc
