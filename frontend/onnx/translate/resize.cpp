// Resize: along each axis that changes, a gather (nearest) or a matmul with a matrix of constants (linear, cubic).
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"
#include <algorithm>
#include <charconv>
#include <cmath>

namespace fsdpc {

namespace {

// Maximum weights of one axis; 64 MiB in f32.
constexpr int64_t maxWeights = int64_t(1) << 24;

struct ResizedAxis {
  int64_t axis, from, to;
  double scale;
};

/// Upsample (before opset 10) and Resize of opset 10 have no roi.
bool hasRoi(const NodeTranslation &t) { return t.node.op_type() == "Resize" && t.opset >= 11; }

/// The sizes or scales that an input requests, per listed axis.
struct Request {
  Shape axes;
  Shape sizes;                ///< empty: scales decide
  std::vector<double> scales; ///< empty: sizes decide
};

/// 0.7f stands for 0.7, the shortest decimal that rounds to it. Otherwise positions halfway between two elements would
/// be missed.
double decimalOf(float scale) {
  char text[32];
  double value = scale;
  auto end = std::to_chars(text, text + sizeof text, scale).ptr;
  std::from_chars(text, end, value);
  return value;
}

Request requestOf(NodeTranslation &t, int64_t rank) {
  Request request{t.has("axes") ? t.integers("axes") : allAxes(rank), {}, {}};
  unsigned scalesAt = hasRoi(t) ? 2 : 1, sizesAt = 3;
  bool bySizes = t.hasInput(sizesAt) && t.input(sizesAt)->type().elements() > 0;
  if (bySizes) {
    request.sizes = t.constantIntegers(sizesAt, "the sizes");
  } else {
    const Dense *scales = t.constantOf(t.input(scalesAt));
    if (!scales)
      t.reject("the scales must be constant");
    for (int64_t i = 0; i < t.input(scalesAt)->type().elements(); ++i)
      request.scales.push_back(decimalOf(static_cast<float>(scales->at(i))));
  }
  size_t count = bySizes ? request.sizes.size() : request.scales.size();
  if (count != request.axes.size())
    t.reject(llvm::Twine(count) + " sizes or scales for " + llvm::Twine(request.axes.size()) + " axes");
  return request;
}

/// Sets one scale for all axes, such that none becomes larger than its size, or none smaller.
void keepAspectRatio(NodeTranslation &t, Request &request, const Type &type) {
  std::string policy = t.text("keep_aspect_ratio_policy", "stretch");
  if (policy == "stretch" || request.sizes.empty())
    return;
  if (policy != "not_larger" && policy != "not_smaller")
    t.reject("keep_aspect_ratio_policy='" + policy + "' is not supported");
  std::optional<double> scale;
  for (size_t i = 0; i < request.axes.size(); ++i) {
    double own = static_cast<double>(request.sizes[i]) /
                 static_cast<double>(type.dim(t.normalAxis(request.axes[i], type.rank())));
    scale = !scale ? own : policy == "not_larger" ? std::min(*scale, own) : std::max(*scale, own);
  }
  request.scales.assign(request.axes.size(), scale.value_or(1));
}

std::vector<ResizedAxis> resizedAxes(NodeTranslation &t) {
  const Type &type = t.input(0)->type();
  Request request = requestOf(t, type.rank());
  keepAspectRatio(t, request, type);
  bool rounds = !request.sizes.empty(); // for a kept aspect ratio
  std::vector<ResizedAxis> result;
  for (size_t i = 0; i < request.axes.size(); ++i) {
    int64_t axis = t.normalAxis(request.axes[i], type.rank()), from = type.dim(axis);
    double size = static_cast<double>(from);
    double scale = request.scales.empty() ? static_cast<double>(request.sizes[i]) / size : request.scales[i];
    // Scales are f32, and so is the product with a size: 6 elements times 0.8333333 are 5.
    double exact = request.scales.empty() ? static_cast<double>(request.sizes[i])
                                          : static_cast<double>(static_cast<float>(size) * static_cast<float>(scale));
    double to = std::floor(rounds ? exact + 0.5 : exact);
    if (!(from >= 1 && to >= 1 && to <= 0x1p31))
      t.reject("axis " + llvm::Twine(axis) + " of " + toString(type) + " cannot get " + doubleText(to) + " elements");
    if (static_cast<int64_t>(to) != from || scale != 1)
      result.push_back({axis, from, static_cast<int64_t>(to), scale});
  }
  return result;
}

/// The position in the input of element `at` of the result.
double sourceOf(NodeTranslation &t, const ResizedAxis &a, int64_t at) {
  std::string fallback = hasRoi(t) ? "half_pixel" : "asymmetric";
  std::string mode = t.text("coordinate_transformation_mode", fallback);
  double x = static_cast<double>(at), from = static_cast<double>(a.from), to = static_cast<double>(a.to);
  if (mode == "asymmetric")
    return x / a.scale;
  if (mode == "align_corners")
    return a.to == 1 ? 0 : x * (from - 1) / (to - 1);
  if (mode == "pytorch_half_pixel" && a.to == 1)
    return 0;
  if (mode == "half_pixel" || mode == "pytorch_half_pixel")
    return (x + 0.5) / a.scale - 0.5;
  if (mode == "tf_half_pixel_for_nn")
    return (x + 0.5) / a.scale;
  // The fraction by which from * scale exceeds the integer result size is omitted equally on both sides.
  if (mode == "half_pixel_symmetric")
    return from / 2 * (1 - to / (a.scale * from)) + (x + 0.5) / a.scale - 0.5;
  t.reject("coordinate_transformation_mode='" + mode + "' is not supported");
}

int64_t nearestTo(NodeTranslation &t, const ResizedAxis &a, double x) {
  std::string mode = t.text("nearest_mode", hasRoi(t) ? "round_prefer_floor" : "floor");
  double nearest = mode == "floor"                ? std::floor(x)
                   : mode == "ceil"               ? std::ceil(x)
                   : mode == "round_prefer_floor" ? std::ceil(x - 0.5)
                                                  : std::floor(x + 0.5);
  return static_cast<int64_t>(std::clamp(nearest, 0.0, static_cast<double>(a.from - 1)));
}

/// Integer multiples repeat every element, whose derivative is a sum. Anything else is a gather.
Value *takeNearest(NodeTranslation &t, Value *x, const ResizedAxis &a) {
  if (a.to > maxWeights)
    t.reject("axis " + llvm::Twine(a.axis) + " would get more than " + llvm::Twine(maxWeights) + " elements");
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

/// The interpolation kernel: a triangle, or Keys' cubic convolution.
struct Kernel {
  bool isCubic;
  double coefficient; ///< of the cubic one
  bool antialias;     ///< stretched if the result is smaller
  bool excludeOutside;

  double at(double distance) const {
    double d = std::fabs(distance), c = coefficient;
    if (!isCubic)
      return std::max(0.0, 1 - d);
    if (d <= 1)
      return ((c + 2) * d - (c + 3)) * d * d + 1;
    return d < 2 ? ((c * d - 5 * c) * d + 8 * c) * d - 4 * c : 0;
  }
  double stretch(const ResizedAxis &a) const { return antialias ? std::min(a.scale, 1.0) : 1; }
  /// Elements further away have weight 0.
  double reach(const ResizedAxis &a) const { return (isCubic ? 2 : 1) / stretch(a); }
};

/// Adds to `row` the weight of each element of the input at position x. Elements outside count for the nearest end.
void addWeights(double *row, const ResizedAxis &a, double x, const Kernel &kernel) {
  double sum = 0, last = static_cast<double>(a.from - 1);
  for (double at = std::ceil(x - kernel.reach(a)); at <= x + kernel.reach(a); ++at) {
    bool isInside = at >= 0 && at <= last;
    double weight = kernel.excludeOutside && !isInside ? 0 : kernel.at((at - x) * kernel.stretch(a));
    row[static_cast<int64_t>(std::clamp(at, 0.0, last))] += weight;
    sum += weight;
  }
  bool isNormalised = kernel.antialias || kernel.excludeOutside;
  for (int64_t i = 0; isNormalised && sum != 0 && i < a.from; ++i)
    row[i] /= sum;
}

Value *interpolate(NodeTranslation &t, Value *x, const ResizedAxis &a, const Kernel &kernel) {
  // A scale that does not match the sizes could make windows wider than the input.
  double taps = static_cast<double>(a.to) * std::max(static_cast<double>(a.from), kernel.reach(a));
  if (!(taps <= static_cast<double>(maxWeights)))
    t.reject("resizing axis " + llvm::Twine(a.axis) + " from " + llvm::Twine(a.from) + " to " + llvm::Twine(a.to) +
             " elements would need more than " + llvm::Twine(maxWeights) + " weights");
  std::vector<double> weights(a.to * a.from, 0);
  for (int64_t i = 0; i < a.to; ++i)
    addWeights(weights.data() + i * a.from, a, sourceOf(t, a, i), kernel);
  DType dtype = x->type().dtype();
  Value *matrix = t.constant(Type(dtype, {a.to, a.from}), Dense::fromDoubles(dtype, weights));
  int64_t last = x->type().rank() - 1;
  Value *y = t.make(Op::matmul, {t.moveAxis(x, a.axis, last), matrix}, MatmulAttributes{false, true});
  return t.moveAxis(y, last, a.axis);
}

void resize(NodeTranslation &t) {
  std::string mode = t.text("mode", "nearest");
  if (mode != "nearest" && mode != "linear" && mode != "cubic")
    t.reject("mode='" + mode + "' is not supported");
  Value *x = t.input(0);
  if (mode != "nearest" && !isFloat(x->type().dtype()))
    t.reject("only floats are interpolated");
  Kernel kernel{mode == "cubic", t.real("cubic_coeff_a", -0.75), t.integer("antialias", 0) != 0,
                t.integer("exclude_outside", 0) != 0};
  for (const ResizedAxis &axis : resizedAxes(t))
    x = mode == "nearest" ? takeNearest(t, x, axis) : interpolate(t, x, axis, kernel);
  t.setOutput(0, x);
}

constexpr TranslationRow rows[] = {{"Resize", resize}};

} // namespace

TranslationRows resizeTranslations() { return rows; }

} // namespace fsdpc
