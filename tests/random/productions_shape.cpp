// Ops that create or move elements. The sample axis stays complete and in order: no production may mix samples.
#include "tests/random/productions.h"

namespace fsdpc {

namespace {

std::optional<Tensor> constant(GraphMaker &g, Op) {
  return g.constants(DType::f32, g.smallShape(g.random->between(0, 3)), -1, 1);
}

std::optional<Tensor> iota(GraphMaker &g, Op op) {
  Shape shape = g.smallShape(g.random->between(1, 3));
  int64_t axis = g.random->below(static_cast<int64_t>(shape.size()));
  if (g.random->chance(0.4)) {
    DType dtype = g.random->pick({DType::i64, DType::i32});
    g.keep(g.make(op, {}, IotaAttributes{dtype, shape, axis, 0, 1}, {-1, 1, true, shape[axis]}));
  }
  return g.make(op, {}, IotaAttributes{DType::f32, shape, axis, g.random->pick({-1.0, 0.0, 0.5}), 0.25}, {-1, 2, true});
}

std::optional<Tensor> broadcast(GraphMaker &g, Op) {
  Tensor x = g.anyFloat();
  Shape shape(x.shape());
  // New leading axes and stretched ones; the samples move along.
  for (int64_t axis : g.freeAxes(x))
    if (shape[axis] == 1)
      shape[axis] = g.smallDim();
  int64_t extra = x.rank() < 4 ? g.random->between(0, 1) : 0;
  for (int64_t i = 0; i < extra; ++i)
    shape.insert(shape.begin(), g.random->between(1, 3));
  return g.broadcast(x, shape, x.batch < 0 ? -1 : x.batch + extra);
}

/// The same elements per sample in another shape, or several rows of a sample on the samples' axis.
std::optional<Tensor> reshape(GraphMaker &g, Op) {
  Tensor x = g.anyFloat();
  if (x.batch > 0)
    return std::nullopt;
  int64_t elements = x.type().elements() / (x.batch == 0 ? g.options.batch : 1);
  Shape sampleShape;
  for (int64_t part : {2, 3, 5, 7, 2, 3})
    if (elements % part == 0 && sampleShape.size() < 3 && g.random->chance(0.5)) {
      sampleShape.push_back(part);
      elements /= part;
    }
  sampleShape.insert(sampleShape.begin() + g.random->below(static_cast<int64_t>(sampleShape.size()) + 1), elements);
  if (g.random->chance(0.2))
    sampleShape.insert(sampleShape.begin(), 1);
  if (x.batch < 0)
    return g.reshape(x, sampleShape, -1);
  if (g.random->chance(0.35))
    sampleShape[0] *= g.options.batch;
  else
    sampleShape.insert(sampleShape.begin(), g.options.batch);
  return g.reshape(x, sampleShape, 0);
}

std::optional<Tensor> transpose(GraphMaker &g, Op) {
  Tensor x = g.anyFloat();
  Shape permutation;
  for (int64_t axis = 0; axis < x.rank(); ++axis)
    permutation.insert(permutation.begin() + g.random->below(axis + 1), axis);
  return g.transpose(x, permutation);
}

std::optional<Tensor> slice(GraphMaker &g, Op op) {
  Tensor x = g.anyFloat();
  SliceAttributes own;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    int64_t dim = x.type().dim(axis);
    bool whole = g.isBatch(x, axis) || g.random->chance(0.4);
    int64_t step = whole ? 1 : g.random->pick({1, 1, 2, 3, -1, -2});
    int64_t size = whole ? dim : g.random->between(1, (dim - 1) / std::abs(step) + 1);
    int64_t span = (size - 1) * std::abs(step), first = g.random->between(0, whole ? 0 : dim - 1 - span);
    own.starts.push_back(step > 0 ? first : first + span);
    own.sizes.push_back(size);
    own.steps.push_back(step);
  }
  return g.make(op, {x}, own, GraphMaker::traitsOf(x));
}

std::optional<Tensor> pad(GraphMaker &g, Op op) {
  Tensor x = g.anyFloat();
  PadAttributes own;
  own.value = g.random->pick({0.0, 0.0, 0.5});
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    bool whole = g.isBatch(x, axis) || g.random->chance(0.5);
    own.before.push_back(whole ? 0 : g.random->between(0, 2));
    own.after.push_back(whole ? 0 : g.random->between(0, 2));
    own.interior.push_back(whole ? 0 : g.random->pick({0, 0, 0, 1, 2}));
  }
  return g.make(op, {x}, own, GraphMaker::traitsOf(x));
}

std::optional<Tensor> concat(GraphMaker &g, Op op) {
  Tensor x = g.anyFloat();
  if (g.freeAxes(x).empty())
    return std::nullopt;
  int64_t axis = g.random->pick(g.freeAxes(x));
  std::vector<Tensor> parts = {x};
  double scale = x.scale;
  for (int64_t i = g.random->between(0, 2); i > 0; --i) {
    Tensor part = g.partnerOf(x);
    scale = std::max(scale, part.scale);
    parts.insert(parts.begin() + g.random->below(static_cast<int64_t>(parts.size()) + 1), part);
  }
  bool exact = llvm::all_of(parts, [](const Tensor &part) { return part.exact; });
  return g.make(op, parts, AxisAttributes{axis}, {x.batch, scale, exact});
}

std::optional<Tensor> cumulativeSum(GraphMaker &g, Op op) {
  Tensor x = g.anyFloat();
  if (g.freeAxes(x).empty())
    return std::nullopt;
  int64_t axis = g.random->pick(g.freeAxes(x));
  CumulativeSumAttributes own{axis, g.random->chance(0.3), g.random->chance(0.3)};
  return g.make(op, {x}, own, {x.batch, x.scale * static_cast<double>(x.type().dim(axis))});
}

constexpr Production rows[] = {
    {Op::constant, constant},   {Op::iota, iota},
    {Op::broadcast, broadcast}, {Op::reshape, reshape},
    {Op::reshape, reshape},     {Op::transpose, transpose},
    {Op::slice, slice},         {Op::pad, pad},
    {Op::concat, concat},       {Op::cumulativeSum, cumulativeSum},
};

} // namespace

llvm::ArrayRef<Production> shapeProductions() { return rows; }

} // namespace fsdpc
