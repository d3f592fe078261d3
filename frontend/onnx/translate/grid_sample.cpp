// GridSample, as gathers of rows and sums with weights, and AffineGrid, which makes grids.
//
// A sample is between elements on every spatial axis. Per axis it has corners: an element and its weight; a sample is
// the sum over all combinations of corners. x is laid out as rows of channels, so that a corner's channels are one row;
// its derivative sums rows in a fixed order. Derivatives of coordinates are PyTorch's: those of the weights, and 0
// where a coordinate was moved to the border.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"
#include <algorithm>

namespace fsdpc {

namespace {

enum class Padding { zeros, border, reflection };
enum class Interpolation { nearest, linear, cubic };

/// For every sample [N, M], an element of one axis and its weight, 0 outside the axis.
struct Corner {
  Value *index; ///< i64, always inside the axis
  Value *weight;
};

class Sampler {
public:
  explicit Sampler(NodeTranslation &t)
      : t(t), alignCorners(t.integer("align_corners", 0) != 0), padding(paddingOf()), interpolation(interpolationOf()) {
  }

  /// The corners of samples at `grid` on an axis of `dim` elements. -1 and 1 are the axis' ends.
  llvm::SmallVector<Corner, 4> corners(Value *grid, int64_t dim) {
    double size = static_cast<double>(dim);
    Value *fromStart = t.binary(Op::add, grid, 1);
    Value *x = alignCorners ? t.binary(Op::mul, fromStart, (size - 1) / 2)
                            : t.binary(Op::mul, t.binary(Op::sub, t.binary(Op::mul, fromStart, size), 1), 0.5);
    if (interpolation == Interpolation::cubic)
      return cubicCorners(x, dim);
    x = padded(x, dim);
    if (interpolation == Interpolation::nearest)
      return {corner(t.unary(Op::round, x), t.constantLike(x, 1), dim)};
    Value *base = t.unary(Op::floor, x), *part = t.binary(Op::sub, x, base);
    Value *rest = t.binary(Op::sub, t.constantLike(x, 1), part);
    return {corner(base, rest, dim), corner(t.binary(Op::add, base, 1), part, dim)};
  }

private:
  Padding paddingOf() {
    std::string mode = t.text("padding_mode", "zeros");
    if (mode != "zeros" && mode != "border" && mode != "reflection")
      t.reject("padding_mode='" + mode + "' is not supported");
    return mode == "zeros" ? Padding::zeros : mode == "border" ? Padding::border : Padding::reflection;
  }

  /// bilinear and bicubic up to opset 19, linear and cubic from 20 on.
  Interpolation interpolationOf() {
    std::string mode = t.text("mode", "linear");
    if (mode == "nearest")
      return Interpolation::nearest;
    if (mode == "linear" || mode == "bilinear")
      return Interpolation::linear;
    if (mode != "cubic" && mode != "bicubic")
      t.reject("mode='" + mode + "' is not supported");
    return Interpolation::cubic;
  }

  /// Clamped to [0, dim - 1]. The derivative is 0 for coordinates outside or at an end.
  Value *clipped(Value *x, int64_t dim) {
    Value *first = t.constantLike(x, 0), *last = t.constantLike(x, static_cast<double>(dim - 1));
    Value *below = t.select(t.binary(Op::lessEqual, last, x), last, x);
    return t.select(t.binary(Op::lessEqual, x, first), first, below);
  }

  /// Mirrored at the centers of the first and the last element, or half an element further out.
  Value *reflected(Value *x, int64_t dim) {
    double start = alignCorners ? 0 : -0.5, span = static_cast<double>(alignCorners ? dim - 1 : dim);
    if (span == 0)
      return t.constantLike(x, 0);
    Value *offset = t.binary(Op::sub, x, start);
    Value *isNegative = t.binary(Op::less, offset, 0.0);
    Value *there = t.binary(Op::mod, t.select(isNegative, t.unary(Op::neg, offset), offset), 2 * span);
    Value *back = t.binary(Op::sub, t.constantLike(x, 2 * span), there);
    return t.binary(Op::add, t.select(t.binary(Op::less, there, span), there, back), start);
  }

  Value *padded(Value *x, int64_t dim) {
    if (padding == Padding::zeros)
      return x;
    return clipped(padding == Padding::border ? x : reflected(x, dim), dim);
  }

  /// `place` is a whole number; outside the axis (or for NaN) the corner is element 0 with weight 0.
  Corner corner(Value *place, Value *weight, int64_t dim) {
    Value *reachesStart = t.binary(Op::lessEqual, t.constantLike(place, 0), place);
    Value *isInside =
        t.binary(Op::logicalAnd, reachesStart, t.binary(Op::lessEqual, place, static_cast<double>(dim - 1)));
    Value *zero = t.constantLike(place, 0);
    return {t.cast(t.select(isInside, place, zero), DType::i64), t.select(isInside, weight, zero)};
  }

  /// Four elements around x, weighted by the cubic convolution kernel with a = -0.75.
  llvm::SmallVector<Corner, 4> cubicCorners(Value *x, int64_t dim) {
    Value *base = t.unary(Op::floor, x), *part = t.binary(Op::sub, x, base);
    Value *rest = t.binary(Op::sub, t.constantLike(x, 1), part);
    Value *weights[] = {far(t.binary(Op::add, part, 1)), near(part), near(rest), far(t.binary(Op::add, rest, 1))};
    llvm::SmallVector<Corner, 4> corners;
    for (int i = 0; i < 4; ++i)
      corners.push_back(corner(padded(t.binary(Op::add, base, i - 1), dim), weights[i], dim));
    return corners;
  }

  /// ((c[0] d + c[1]) d + c[2]) d + c[3]
  Value *polynomial(Value *d, const double (&c)[4]) {
    Value *sum = t.constantLike(d, c[0]);
    for (int i = 1; i < 4; ++i)
      sum = t.binary(Op::add, t.binary(Op::mul, sum, d), c[i]);
    return sum;
  }
  Value *near(Value *distance) { return polynomial(distance, {1.25, -2.25, 0, 1}); }
  Value *far(Value *distance) { return polynomial(distance, {-0.75, 3.75, -6, 3}); }

  NodeTranslation &t;
  const bool alignCorners;
  const Padding padding;
  const Interpolation interpolation;
};

/// Sums weighted rows of x [N, elements, C] over all combinations of one corner per axis.
Value *sumOverCorners(NodeTranslation &t, Value *rows, llvm::ArrayRef<llvm::SmallVector<Corner, 4>> axes,
                      llvm::ArrayRef<int64_t> dims) {
  llvm::SmallVector<Corner, 16> corners = {{nullptr, nullptr}};
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    llvm::SmallVector<Corner, 16> combined;
    for (const Corner &outer : corners)
      for (const Corner &inner : axes[axis]) {
        if (!outer.index) {
          combined.push_back(inner);
          continue;
        }
        Value *start = t.binary(Op::mul, outer.index, static_cast<double>(dims[axis]));
        combined.push_back({t.binary(Op::add, start, inner.index), t.binary(Op::mul, outer.weight, inner.weight)});
      }
    corners = std::move(combined);
  }
  Value *sum = nullptr;
  for (const Corner &corner : corners) {
    Shape column(corner.index->type().shape());
    column.push_back(1);
    Value *row = t.make(Op::gatherNd, {rows, t.reshape(corner.index, column)}, GatherNdAttributes{1});
    Value *weight = t.reshape(t.cast(corner.weight, rows->type().dtype()), column);
    Value *part = t.binary(Op::mul, row, weight);
    sum = sum ? t.binary(Op::add, sum, part) : part;
  }
  return sum;
}

void gridSample(NodeTranslation &t) {
  Value *x = t.input(0), *grid = t.input(1);
  const Type &type = x->type(), &gridType = grid->type();
  int64_t rank = type.rank(), spatial = rank - 2;
  if (spatial < 1 || spatial > 3 || gridType.rank() != rank || gridType.dim(-1) != spatial ||
      gridType.dim(0) != type.dim(0) || !isFloat(type.dtype()) || !isFloat(gridType.dtype()))
    t.reject("a grid " + toString(gridType) + " does not fit " + toString(type) + " of 1 to 3 spatial axes");
  llvm::ArrayRef<int64_t> dims = type.shape().drop_front(2), outputs = gridType.shape().drop_front(1).drop_back(1);
  std::optional<int64_t> elements = checkedElements(dims), samples = checkedElements(outputs);
  if (!elements || *elements == 0 || !samples)
    t.reject(toString(type) + " has no elements to sample, or " + toString(gridType) + " too many samples");
  Sampler sampler(t);
  llvm::SmallVector<llvm::SmallVector<Corner, 4>, 3> axes;
  for (int64_t i = 0; i < spatial; ++i) {
    // The grid's first coordinate is that of the last axis.
    Value *coordinate = t.slice(grid, rank - 1, spatial - 1 - i, 1);
    axes.push_back(sampler.corners(t.reshape(coordinate, {type.dim(0), *samples}), dims[i]));
  }
  Value *rows = t.moveAxis(t.reshape(x, {type.dim(0), type.dim(1), *elements}), 1, 2);
  Value *sampled = t.moveAxis(sumOverCorners(t, rows, axes, dims), 2, 1);
  Shape result = {type.dim(0), type.dim(1)};
  result.append(outputs.begin(), outputs.end());
  t.setOutput(0, t.reshape(sampled, result));
}

/// The centers of `dim` elements between -1 and 1; with corners aligned, the first and the last are at the ends.
double centerOf(int64_t at, int64_t dim, bool alignCorners) {
  if (alignCorners)
    return dim == 1 ? 0 : 2 * static_cast<double>(at) / static_cast<double>(dim - 1) - 1;
  return static_cast<double>(2 * at + 1) / static_cast<double>(dim) - 1;
}

/// [elements, axes + 1]: the coordinates of every element, the last axis' first, and a 1.
std::vector<double> homogeneousGrid(llvm::ArrayRef<int64_t> dims, int64_t elements, bool alignCorners) {
  std::vector<double> grid;
  grid.reserve(elements * (dims.size() + 1));
  for (int64_t i = 0; i < elements; ++i) {
    int64_t rest = i;
    for (int64_t dim : llvm::reverse(dims)) {
      grid.push_back(centerOf(rest % dim, dim, alignCorners));
      rest /= dim;
    }
    grid.push_back(1);
  }
  return grid;
}

/// The positions to which theta [N, axes, axes + 1] maps the center of every element of a tensor of `size` [N, C,
/// spatial...].
void affineGrid(NodeTranslation &t) {
  Value *theta = t.input(0);
  const Type &type = theta->type();
  Shape size = t.constantIntegers(1, "the size");
  int64_t axes = static_cast<int64_t>(size.size()) - 2;
  if (axes < 2 || axes > 3 || type.rank() != 3 || type.dim(1) != axes || type.dim(2) != axes + 1)
    t.reject("theta " + toString(type) + " does not fit a size of " + llvm::Twine(size.size()) + " axes");
  llvm::ArrayRef<int64_t> dims = llvm::ArrayRef<int64_t>(size).drop_front(2);
  std::optional<int64_t> elements = checkedElements(dims);
  if (llvm::any_of(dims, [](int64_t dim) { return dim < 1; }) || !elements || *elements > (int64_t(1) << 24))
    t.reject("a grid that is empty or has more than 2^24 elements");
  std::vector<double> grid = homogeneousGrid(dims, *elements, t.integer("align_corners", 0) != 0);
  Value *points = t.constant(Type(type.dtype(), {*elements, axes + 1}), Dense::fromDoubles(type.dtype(), grid));
  Value *moved = t.make(Op::matmul, {theta, points}, MatmulAttributes{false, true});
  Shape result = {type.dim(0)};
  result.append(dims.begin(), dims.end());
  result.push_back(axes);
  t.setOutput(0, t.reshape(t.moveAxis(moved, 1, 2), result));
}

constexpr TranslationRow rows[] = {{"AffineGrid", affineGrid}, {"GridSample", gridSample}};

} // namespace

TranslationRows gridSampleTranslations() { return rows; }

} // namespace fsdpc
