// Compositions that passes look for, as frameworks export them.
#include "tests/random/productions.h"

#include <cmath>

namespace fsdpc {

namespace {

Tensor mean(GraphMaker &g, const Tensor &x) {
  int64_t last = x.rank() - 1;
  Tensor sum = g.make(Op::reduceSum, {x}, ReduceAttributes{{last}, true}, {x.batch, x.scale});
  Tensor count =
      g.broadcast(g.constant(DType::f32, {}, static_cast<double>(x.type().dim(last))), sum.shape(), sum.batch);
  Tensor quotient = g.binary(Op::div, sum, count, x.scale);
  return g.broadcast(quotient, x.shape(), x.batch);
}

std::optional<Tensor> decomposedLayerNorm(GraphMaker &g, Op) {
  Tensor x = g.perSample(g.batchedFloat(), g.smallShape(g.random->between(1, 2)));
  Tensor centred = g.binary(Op::sub, x, mean(g, x), x.scale);
  Tensor square =
      g.random->chance(0.5)
          ? g.binary(Op::mul, centred, centred, x.scale)
          : g.binary(Op::pow, centred, g.broadcast(g.constant(DType::f32, {}, 2), x.shape(), x.batch), x.scale);
  Tensor deviation = g.unary(Op::sqrt, g.plus(mean(g, square), 0.01), 1);
  Tensor normalised = g.binary(Op::div, centred, deviation, 2);
  auto stretched = [&] { return g.broadcast(g.parameter({x.type().dim(-1)}), x.shape(), x.batch); };
  return g.binary(Op::add, g.binary(Op::mul, normalised, stretched(), 2), stretched(), 3);
}

std::optional<Tensor> decomposedRmsNorm(GraphMaker &g, Op) {
  Tensor x = g.perSample(g.batchedFloat(), g.smallShape(g.random->between(1, 2)));
  Tensor power = g.plus(mean(g, g.binary(Op::mul, x, x, x.scale)), 0.01);
  Tensor normalised = g.binary(Op::mul, x, g.unary(Op::rsqrt, power, 10), 2);
  return g.binary(Op::mul, g.broadcast(g.parameter({x.type().dim(-1)}), x.shape(), x.batch), normalised, 3);
}

/// A norm of a sum that has other uses, as around the layers of a transformer.
std::optional<Tensor> normOfSum(GraphMaker &g, Op op) {
  int64_t width = g.random->between(2, 5);
  Tensor x = g.scaledTo(g.perSample(g.batchedFloat(), {g.smallDim(), width}), 1);
  Tensor product = g.make(Op::matmul, {x, g.parameter({width, width})}, MatmulAttributes{}, {0, 3});
  Tensor sum = g.random->chance(0.5) ? g.binary(Op::add, x, product, 4) : g.binary(Op::add, product, x, 4);
  llvm::SmallVector<Tensor, 3> operands = {sum, g.parameter({width})};
  if (op == Op::layerNorm)
    operands.push_back(g.parameter({width}));
  Tensor normalised = g.make(op, operands, NormAttributes{2, 1e-2}, {0, 3});
  return g.random->chance(0.5) ? g.binary(Op::add, sum, normalised, 7) : g.binary(Op::add, normalised, sum, 7);
}

std::optional<Tensor> decomposedGelu(GraphMaker &g, Op) {
  Tensor x = g.anyFloat();
  if (g.random->chance(0.5)) {
    Tensor gate = g.plus(g.unary(Op::erf, g.times(x, 0.70710678118654752), 1), 1);
    return g.times(g.binary(Op::mul, x, gate, x.scale * 2), 0.5);
  }
  Tensor cube = g.binary(Op::mul, x, g.binary(Op::mul, x, x, 1), 1);
  Tensor inner = g.times(g.binary(Op::add, x, g.times(cube, 0.044715), 1), 0.79788456080286536);
  Tensor gate = g.plus(g.unary(Op::tanh, inner, 1), 1);
  return g.binary(Op::mul, g.times(x, 0.5), gate, x.scale);
}

std::optional<Tensor> decomposedSilu(GraphMaker &g, Op) {
  Tensor x = g.anyFloat();
  return g.binary(Op::mul, x, g.unary(Op::sigmoid, x, 1), x.scale);
}

Tensor cut(GraphMaker &g, const Tensor &x, int64_t start, int64_t size) {
  SliceAttributes slice{Shape(x.rank(), 0), Shape(x.shape()), Shape(x.rank(), 1)};
  slice.starts.back() = start;
  slice.sizes.back() = size;
  return g.make(Op::slice, {x}, slice, {x.batch, x.scale});
}

std::optional<Tensor> decomposedRotary(GraphMaker &g, Op) {
  int64_t heads = g.random->between(1, 3), length = g.random->between(1, 4), half = g.random->between(1, 3);
  Tensor x = g.perSample(g.batchedFloat(), {length, heads, 2 * half});
  if (g.random->chance(0.5))
    x = g.transpose(x, {0, 2, 1, 3});
  Tensor second = g.unary(Op::neg, cut(g, x, half, half), x.scale);
  Tensor turned = g.make(Op::concat, {second, cut(g, x, 0, half)}, AxisAttributes{3}, {0, x.scale});
  auto angles = [&] {
    Tensor table = g.constants(DType::f32, {x.type().dim(2), 2 * half}, -1, 1);
    return g.broadcast(table, x.shape(), x.batch);
  };
  return g.binary(Op::add, g.binary(Op::mul, x, angles(), x.scale), g.binary(Op::mul, turned, angles(), x.scale),
                  2 * x.scale);
}

/// [B, H, S, D] with every head repeated `times` times consecutively.
Tensor repeatedHeads(GraphMaker &g, const Tensor &x, int64_t times) {
  if (times == 1)
    return x;
  Shape shape(x.shape());
  shape.insert(shape.begin() + 2, 1);
  Tensor apart = g.reshape(x, shape, 0);
  shape[2] = times;
  Tensor copies = g.broadcast(apart, shape, 0);
  return g.reshape(copies, {shape[0], shape[1] * times, shape[3], shape[4]}, 0);
}

/// Numbers of queries, and others of keys, added to the scores.
Tensor withFactors(GraphMaker &g, Tensor scores) {
  const int64_t length = scores.type().dim(-1);
  for (const Shape &shape : {Shape{length, 1}, Shape{1, length}}) {
    const Tensor factor = g.constants(DType::f32, shape, -4, 0);
    scores = g.binary(Op::add, scores, g.broadcast(factor, scores.shape(), 0), scores.scale + 4);
  }
  return scores;
}

/// Scores of keys of other documents than the query's are filled.
Tensor withinDocuments(GraphMaker &g, const Tensor &scores) {
  const int64_t length = scores.type().dim(-1);
  const Tensor documents = g.documents(length);
  const int64_t batch = documents.batch, samples = documents.type().dim(0);
  auto compared = [&](const Shape &shape) {
    return g.broadcast(g.reshape(documents, shape, batch), scores.shape(), scores.batch);
  };
  Tensor same = g.make(Op::equal, {compared({samples, 1, length, 1}), compared({samples, 1, 1, length})},
                       {scores.batch, 1, true});
  Tensor filled = g.broadcast(g.constant(DType::f32, {}, -10000), scores.shape(), scores.batch);
  return g.make(Op::select, {same, scores, filled}, {scores.batch, scores.scale});
}

std::optional<Tensor> decomposedAttention(GraphMaker &g, Op) {
  int64_t length = g.random->between(2, 5), width = g.random->between(1, 4);
  int64_t keyHeads = g.random->between(1, 3), group = g.random->chance(0.3) ? 2 : 1, heads = keyHeads * group;
  Tensor q = g.perSample(g.batchedFloat(), {heads, length, width});
  Tensor k = repeatedHeads(g, g.perSample(g.batchedFloat(), {keyHeads, length, width}), group);
  Tensor v = repeatedHeads(g, g.perSample(g.anyFloat(), {keyHeads, length, width}), group);
  bool transposed = g.random->chance(0.5);
  Tensor keys = transposed ? g.transpose(k, {0, 1, 3, 2}) : k;
  Tensor scores = g.make(Op::matmul, {q, keys}, MatmulAttributes{false, !transposed}, {0, 4});
  scores = g.times(scores, 1 / std::sqrt(static_cast<double>(width)));
  if (g.random->chance(0.3))
    scores = g.times(g.make(Op::tanh, {g.times(scores, 0.5)}, {0, 1}), 2);
  if (g.random->chance(0.5)) {
    const int64_t window = g.random->chance(0.4) ? g.random->between(1, 3) : length;
    std::vector<double> hidden(length * length, 0);
    for (int64_t i = 0; i < length; ++i)
      for (int64_t j = 0; j < length; ++j)
        hidden[i * length + j] = j > i || i - j >= window ? -10000 : 0;
    Tensor mask = g.make(Op::constant, {}, ConstantAttributes{Dense::fromDoubles(DType::f32, hidden), {length, length}},
                         {-1, 1, true});
    scores = g.binary(Op::add, scores, g.broadcast(mask, scores.shape(), 0), 4);
  }
  if (g.random->chance(0.2))
    scores = withFactors(g, scores);
  if (g.random->chance(0.3))
    scores = withinDocuments(g, scores);
  Tensor weights = g.make(Op::softmax, {scores}, AxisAttributes{3}, {0, 1});
  return g.make(Op::matmul, {weights, v}, MatmulAttributes{}, {0, v.scale});
}

/// The form that the import writes. No other node may read the random numbers, since evaluation removes them.
std::optional<Tensor> dropout(GraphMaker &g, Op op) {
  Tensor x = g.batchedFloat();
  double ratio = g.random->pick({0.1, 0.25, 0.5});
  RandomUniformAttributes random{g.dropouts++, 0, Shape(x.shape())};
  Tensor numbers = g.make(op, {g.scalarState("seed"), g.scalarState("step")}, random, {x.batch, 1, true});
  auto filled = [&](double number) { return g.broadcast(g.constant(DType::f32, {}, number), x.shape(), x.batch); };
  Tensor dropped = g.make(Op::less, {numbers, filled(ratio)}, {x.batch, 1, true});
  Tensor kept = g.make(Op::logicalNot, {dropped}, {x.batch, 1, true});
  Tensor scaled = g.binary(Op::mul, x, filled(1 / (1 - ratio)), x.scale * 2);
  return g.make(Op::select, {kept, scaled, filled(0)}, {x.batch, x.scale * 2});
}

/// Two parameters with the same gradient, which both need in their segments.
std::optional<Tensor> sumOfParameters(GraphMaker &g, Op op) {
  Shape shape = g.smallShape(g.random->between(0, 2));
  Tensor a = g.newParameter(shape, true), b = g.newParameter(shape, true);
  return g.binary(op, a, b, 2);
}

constexpr Production rows[] = {
    {Op::layerNorm, decomposedLayerNorm}, {Op::rmsNorm, decomposedRmsNorm},
    {Op::gelu, decomposedGelu},           {Op::attention, decomposedAttention},
    {Op::randomUniform, dropout},         {Op::add, sumOfParameters},
    {Op::silu, decomposedSilu},           {Op::rotary, decomposedRotary},
    {Op::layerNorm, normOfSum},           {Op::rmsNorm, normOfSum},
};

} // namespace

llvm::ArrayRef<Production> patternProductions() { return rows; }

} // namespace fsdpc
