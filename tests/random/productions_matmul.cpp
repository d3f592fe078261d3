// matmul, convolution (also transposed) and pooling.
#include "tests/random/productions.h"

#include <cmath>

namespace fsdpc {

namespace {

double scaleOfSum(const Tensor &a, const Tensor &b, int64_t terms) {
  return a.scale * b.scale * std::sqrt(static_cast<double>(terms));
}

/// Samples (or rows of them) times a parameter. Either may be transposed.
std::optional<Tensor> timesParameter(GraphMaker &g) {
  int64_t inner = g.smallDim(), columns = g.smallDim();
  Tensor x = g.batchedFloat();
  if (g.random->chance(0.5))
    x = g.perSample(x, {g.smallDim(), inner});
  else
    x = g.perSample(x, {inner});
  bool transposeA = g.random->chance(0.3), transposeB = g.random->chance(0.4);
  if (transposeA)
    x = x.rank() == 2 ? g.transpose(x, {1, 0}) : g.transpose(x, {0, 2, 1});
  Tensor w = g.parameter(transposeB ? Shape{columns, inner} : Shape{inner, columns});
  int64_t batch = x.rank() == 2 ? 0 : x.batch;
  return g.make(Op::matmul, {x, w}, MatmulAttributes{transposeA, transposeB}, {batch, scaleOfSum(x, w, inner)});
}

/// A parameter times samples as columns, or times a matrix of each sample.
std::optional<Tensor> parameterTimes(GraphMaker &g) {
  int64_t rows = g.smallDim(), inner = g.smallDim();
  bool isMatrix = g.random->chance(0.5), transposeA = g.random->chance(0.4), transposeB = g.random->chance(0.4);
  Tensor w = g.parameter(transposeA ? Shape{inner, rows} : Shape{rows, inner});
  if (isMatrix) {
    int64_t columns = g.smallDim();
    Tensor x = g.perSample(g.batchedFloat(), transposeB ? Shape{columns, inner} : Shape{inner, columns});
    return g.make(Op::matmul, {w, x}, MatmulAttributes{transposeA, transposeB}, {0, scaleOfSum(w, x, inner)});
  }
  Tensor x = g.perSample(g.batchedFloat(), {inner});
  if (!transposeB)
    x = g.transpose(x, {1, 0});
  return g.make(Op::matmul, {w, x}, MatmulAttributes{transposeA, transposeB}, {1, scaleOfSum(w, x, inner)});
}

std::optional<Tensor> betweenSamplesOwn(GraphMaker &g) {
  int64_t rows = g.smallDim(), inner = g.smallDim(), columns = g.smallDim();
  bool transposeA = g.random->chance(0.4), transposeB = g.random->chance(0.4);
  Shape a = transposeA ? Shape{inner, rows} : Shape{rows, inner};
  Shape b = transposeB ? Shape{columns, inner} : Shape{inner, columns};
  if (g.random->chance(0.3)) {
    int64_t heads = g.random->between(1, 3);
    a.insert(a.begin(), heads);
    b.insert(b.begin(), heads);
  }
  Tensor x = g.perSample(g.batchedFloat(), a), y = g.perSample(g.anyFloat(), b);
  return g.make(Op::matmul, {x, y}, MatmulAttributes{transposeA, transposeB}, {0, scaleOfSum(x, y, inner)});
}

std::optional<Tensor> matmul(GraphMaker &g, Op) {
  switch (g.random->below(4)) {
  case 0: return parameterTimes(g);
  case 1: return betweenSamplesOwn(g);
  default: return timesParameter(g);
  }
}

// ---- windows

/// Sizes of a convolution whose window fits.
struct Window {
  Shape input, kernel, strides, dilations, padsBefore, padsAfter, output;
};

Window randomWindow(GraphMaker &g, bool pooling) {
  Window w;
  for (int64_t axes = g.random->pick({1, 2, 2, 2, 3}); axes > 0; --axes) {
    int64_t input = g.random->between(2, axes > 2 ? 4 : 6), kernel = g.random->between(1, 3);
    int64_t dilation = g.random->pick({1, 1, 2}), most = pooling ? (kernel - 1) * dilation / 2 : 2;
    int64_t before = g.random->between(0, most), after = g.random->between(0, most);
    int64_t covered = dilation * (kernel - 1) + 1;
    if (covered > input + before + after) {
      dilation = 1;
      kernel = covered = std::min(kernel, input);
    }
    int64_t stride = g.random->pick({1, 1, 2, 3});
    w.input.push_back(input);
    w.kernel.push_back(kernel);
    w.strides.push_back(stride);
    w.dilations.push_back(dilation);
    w.padsBefore.push_back(before);
    w.padsAfter.push_back(after);
    w.output.push_back((input + before + after - covered) / stride + 1);
  }
  return w;
}

/// The shape with channels before the spatial dims.
Shape withChannels(int64_t channels, llvm::ArrayRef<int64_t> spatial) {
  Shape shape = {channels};
  llvm::append_range(shape, spatial);
  return shape;
}

struct Channels {
  int64_t groups, inPerGroup, outPerGroup;
  explicit Channels(Random &random)
      : groups(random.pick({1, 1, 2, 3})), inPerGroup(random.between(1, 2)), outPerGroup(random.between(1, 2)) {}
  Shape weight(llvm::ArrayRef<int64_t> kernel) const {
    Shape shape = {groups * outPerGroup, inPerGroup};
    llvm::append_range(shape, kernel);
    return shape;
  }
};

std::optional<Tensor> convolution(GraphMaker &g, Op op) {
  Window window = randomWindow(g, false);
  Channels channels(*g.random);
  Tensor x = g.perSample(g.batchedFloat(), withChannels(channels.groups * channels.inPerGroup, window.input));
  Tensor w = g.parameter(channels.weight(window.kernel));
  ConvolutionAttributes own{window.strides, window.dilations, window.padsBefore, window.padsAfter, channels.groups, {}};
  llvm::SmallVector<Tensor, 3> operands = {x, w};
  if (g.random->chance(0.5))
    operands.push_back(g.parameter({channels.groups * channels.outPerGroup}));
  return g.tryMake(op, operands, own, {0, scaleOfSum(x, w, w.type().elements() / w.type().dim(0)) + 1});
}

/// A transposed convolution: its operand has the shape of a convolution's result.
std::optional<Tensor> transposedConvolution(GraphMaker &g, Op op) {
  Window window = randomWindow(g, false);
  Channels channels(*g.random);
  Tensor dy = g.perSample(g.batchedFloat(), withChannels(channels.groups * channels.outPerGroup, window.output));
  Tensor w = g.parameter(channels.weight(window.kernel));
  ConvolutionAttributes own{window.strides, window.dilations, window.padsBefore, window.padsAfter, channels.groups, {}};
  own.shape = withChannels(g.options.batch, withChannels(channels.groups * channels.inPerGroup, window.input));
  return g.tryMake(op, {dy, w}, own, {0, scaleOfSum(dy, w, w.type().elements() / channels.groups)});
}

std::optional<Tensor> pool(GraphMaker &g, Op op) {
  Window window = randomWindow(g, true);
  Tensor x = g.perSample(g.batchedFloat(), withChannels(g.random->between(1, 3), window.input));
  if (op == Op::maxPool)
    x = g.withoutTies(x);
  PoolAttributes own{window.kernel,
                     window.strides,
                     window.dilations,
                     window.padsBefore,
                     window.padsAfter,
                     op == Op::averagePool && g.random->chance(0.5),
                     {}};
  return g.tryMake(op, {x}, own, {0, x.scale, op == Op::maxPool && x.exact});
}

constexpr Production rows[] = {
    {Op::matmul, matmul},
    {Op::matmul, matmul},
    {Op::matmul, matmul},
    {Op::convolution, convolution},
    {Op::convolutionGradInput, transposedConvolution},
    {Op::maxPool, pool},
    {Op::averagePool, pool},
};

} // namespace

llvm::ArrayRef<Production> matmulProductions() { return rows; }

} // namespace fsdpc
