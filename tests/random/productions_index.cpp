// Ops that address elements by other elements, and arg_max, which produces indices.
#include "tests/random/productions.h"

namespace fsdpc {

namespace {

DType indexType(GraphMaker &g) { return g.random->pick({DType::i64, DType::i64, DType::i32}); }

/// Rows of a table, chosen by samples.
std::optional<Tensor> embedding(GraphMaker &g) {
  Tensor indices = g.anyInteger();
  if (indices.type().dtype() == DType::u8 || indices.rank() > 3)
    return std::nullopt;
  Shape table = g.smallShape(g.random->between(1, 2), 12);
  int64_t axis = g.random->below(static_cast<int64_t>(table.size()));
  table[axis] = indices.limit + g.random->between(0, 2);
  return g.make(Op::gather, {g.parameter(table), indices}, AxisAttributes{axis},
                {indices.batch < 0 ? -1 : indices.batch + axis, 1, true});
}

/// The same elements of every sample; indices below 0 count from the end.
std::optional<Tensor> selection(GraphMaker &g) {
  Tensor x = g.anyFloat();
  if (g.freeAxes(x).empty() || x.rank() > 3)
    return std::nullopt;
  int64_t axis = g.random->pick(g.freeAxes(x)), dim = x.type().dim(axis);
  Shape shape = g.smallShape(g.random->between(0, 2), 8);
  Tensor indices = g.constants(indexType(g), shape, static_cast<double>(-dim), static_cast<double>(dim - 1));
  int64_t shift = static_cast<int64_t>(shape.size()) - 1;
  GraphMaker::Traits traits = GraphMaker::traitsOf(x);
  traits.batch = x.batch > axis ? x.batch + shift : x.batch;
  return g.make(Op::gather, {x, indices}, AxisAttributes{axis}, traits);
}

std::optional<Tensor> gather(GraphMaker &g, Op) { return g.random->chance(0.5) ? embedding(g) : selection(g); }

std::optional<Tensor> scatterAdd(GraphMaker &g, Op op) {
  Tensor updates = g.anyFloat();
  if (g.freeAxes(updates).empty())
    return std::nullopt;
  int64_t axis = g.random->pick(g.freeAxes(updates)), size = g.smallDim();
  Tensor indices =
      g.constants(indexType(g), {updates.type().dim(axis)}, static_cast<double>(-size), static_cast<double>(size - 1));
  return g.make(op, {indices, updates}, ScatterAddAttributes{axis, size}, {updates.batch, updates.scale * 2});
}

/// `tuples` tuples of indices that each sample has, into axes of `rows` elements.
std::optional<Tensor> tuplesInto(GraphMaker &g, const Shape &rows, int64_t tuples) {
  Tensor indices = g.anyInteger();
  if (indices.type().dtype() == DType::u8)
    return std::nullopt;
  Tensor perSample = g.perSample(indices, {tuples, static_cast<int64_t>(rows.size())}, false);
  perSample.limit = indices.limit;
  Tensor divisor = g.broadcast(g.constant(indices.type().dtype(), {}, static_cast<double>(*llvm::min_element(rows))),
                               perSample.shape(), perSample.batch);
  return g.make(Op::mod, {perSample, divisor}, {perSample.batch, 1, true, 2});
}

Shape indexedAxes(GraphMaker &g) {
  Shape rows;
  for (int64_t depth = g.random->between(1, 2); depth > 0; --depth)
    rows.push_back(g.random->between(2, 4));
  return rows;
}

/// Tuples into the sample itself or into a parameter.
std::optional<Tensor> gatherNd(GraphMaker &g, Op op) {
  Shape rows = indexedAxes(g);
  std::optional<Tensor> tuples = tuplesInto(g, rows, g.random->between(1, 4));
  if (!tuples)
    return std::nullopt;
  Tensor inRange = *tuples;
  if (g.random->chance(0.5))
    rows.push_back(g.random->between(1, 3));
  bool isOwn = g.random->chance(0.6);
  Tensor x = isOwn ? g.perSample(g.anyFloat(), rows) : g.parameter(rows);
  return g.make(op, {x, inRange}, GatherNdAttributes{isOwn ? 1 : 0}, {0, x.scale, x.exact});
}

/// Scatters into each sample. max and min use exact operands only, since rounding decides which of nearly equal values
/// gets the derivative. Without a reduction there is only one tuple: a replaced update keeps its cotangent, as in torch
/// (ir/ops/scatter.cpp), which differs from finite differences of the loss.
std::optional<Tensor> scatterNd(GraphMaker &g, Op op) {
  Shape rows = indexedAxes(g);
  std::string reduction = g.random->pick<std::string>({"none", "add", "mul", "max", "min"});
  int64_t count = reduction == "none" ? 1 : g.random->between(1, 4);
  std::optional<Tensor> tuples = tuplesInto(g, rows, count);
  if (!tuples)
    return std::nullopt;
  Shape updates = {count};
  if (g.random->chance(0.5)) {
    rows.push_back(g.random->between(1, 3));
    updates.push_back(rows.back());
  }
  bool isExtremum = reduction == "max" || reduction == "min";
  Tensor x = g.perSample(isExtremum ? g.exactFloat() : g.scaledTo(g.anyFloat(), 1), rows, !isExtremum);
  Tensor y = g.perSample(isExtremum ? g.exactFloat() : g.scaledTo(g.anyFloat(), 1), updates, !isExtremum);
  if (x.type().dtype() != y.type().dtype() || x.batch != 0 || y.batch != 0)
    return std::nullopt;
  double scale = std::max(x.scale, y.scale);
  return g.make(op, {x, *tuples, y}, ScatterNdAttributes{1, reduction},
                {0, reduction == "add" ? 5 * scale : scale, reduction == "none" && x.exact && y.exact});
}

/// Elements have distinct values, so that rounding does not decide their order.
std::optional<Tensor> topK(GraphMaker &g, Op op) {
  Tensor x = g.withoutTies(g.anyFloat());
  if (x.rank() == 0 || x.batch == x.rank() - 1)
    return std::nullopt;
  int64_t length = x.type().dim(-1);
  TopKAttributes attributes{g.random->between(1, length), g.random->chance(0.3)};
  Tensor values = g.make(op, {x}, attributes, GraphMaker::traitsOf(x));
  g.keep({values.value->definer()->result(1), x.batch, 1, true, length});
  return values;
}

std::optional<Tensor> argMax(GraphMaker &g, Op op) {
  Tensor x = g.withoutTies(g.anyFloat());
  if (g.freeAxes(x).empty())
    return std::nullopt;
  int64_t axis = g.random->pick(g.freeAxes(x));
  g.keep(g.make(op, {x}, AxisAttributes{axis}, {x.batch > axis ? x.batch - 1 : x.batch, 1, true, x.type().dim(axis)}));
  return embedding(g);
}

constexpr Production rows[] = {
    {Op::gather, gather},     {Op::gather, gather}, {Op::scatterAdd, scatterAdd}, {Op::gatherNd, gatherNd},
    {Op::gatherNd, gatherNd}, {Op::argMax, argMax}, {Op::scatterNd, scatterNd},   {Op::topK, topK},
};

} // namespace

llvm::ArrayRef<Production> indexProductions() { return rows; }

} // namespace fsdpc
