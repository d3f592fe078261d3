// Samples of every class of node.
#include "runtime/calibration/benchmark.h"
#include "runtime/cpu/kernels/kernels.h"

#include <utility>

namespace fsdpc::rt {
namespace {

constexpr std::int64_t scratchBytes = std::int64_t{32} << 20;

/// The memory after the part that `floats` returns.
Workspace scratchSpace(const Context &c) {
  return scratch(c, {Space::privateSpace, calibrationPrivateBytes - scratchBytes}, scratchBytes);
}

void product(Benchmark &b, const MatmulShape &shape) {
  static Matmul products[32];
  static int count = 0;
  Matmul &matmul = products[count++];
  matmul.create(b.context, shape, scratchBytes);
  const std::int64_t left = shape.m * shape.k, right = shape.k * shape.n, out = shape.m * shape.n;
  const std::int64_t all = left + right + out;
  b.compute("matmul", 2.0 * static_cast<double>(shape.m * shape.n * shape.k), 4.0 * static_cast<double>(all),
            [&](std::int64_t round) {
              matmul(b.floats(round, all, 0), b.floats(round, all, left), b.floats(round, all, left + right),
                     scratchSpace(b.context));
            });
}

void products(Benchmark &b) {
  for (std::int64_t width : {64, 384, 768}) {
    const std::int64_t rows = width == 384 ? 1024 : 256;
    product(b, {.m = rows, .n = 4 * width, .k = width, .transposeB = true});
    product(b, {.m = rows, .n = width, .k = 4 * width, .transposeB = true});
    product(b, {.m = rows, .n = width, .k = 4 * width});
    product(b, {.m = 4 * width, .n = width, .k = rows, .transposeA = true});
    product(b, {.m = rows, .n = width, .k = width, .transposeB = true});
  }
  product(b, {.m = 16, .n = 64, .k = 64, .transposeB = true});
}

void convolutions(Benchmark &b) {
  static Convolution passes[6];
  int at = 0;
  for (std::int64_t channels : {1, 32})
    for (auto pass : {Convolution::Pass::forward, Convolution::Pass::gradInput, Convolution::Pass::gradWeight}) {
      if (channels == 1 && pass == Convolution::Pass::gradInput)
        continue; // the first layer has none
      ConvolutionShape shape{
          .batch = 16, .inputChannels = channels, .outputChannels = 2 * std::max<std::int64_t>(16, channels)};
      for (int i = 0; i < 2; ++i)
        shape.input[i] = 26, shape.kernel[i] = 3, shape.output[i] = 24;
      const std::int64_t x = 16 * channels * 26 * 26, w = shape.outputChannels * channels * 9;
      const std::int64_t y = 16 * shape.outputChannels * 24 * 24, all = x + w + y;
      Convolution &convolution = passes[at++];
      convolution.create(b.context, pass, shape, scratchBytes);
      const std::int64_t second = pass == Convolution::Pass::gradWeight ? x
                                  : pass == Convolution::Pass::forward  ? x
                                                                        : y;
      const std::int64_t third = pass == Convolution::Pass::forward     ? x + w
                                 : pass == Convolution::Pass::gradInput ? y + w
                                                                        : x + y;
      b.compute("convolution", 2.0 * 9 * static_cast<double>(channels * y), 4.0 * static_cast<double>(all),
                [&](std::int64_t round) {
                  convolution(b.floats(round, all, 0), b.floats(round, all, second), b.floats(round, all, third),
                              scratchSpace(b.context));
                });
    }
}

void attentions(Benchmark &b) {
  for (const auto &[queries, width] : {std::pair<std::int64_t, std::int64_t>{64, 16}, {64, 64}, {256, 64}}) {
    const AttentionShape shape{.batch = 2,
                               .heads = 6,
                               .queries = queries,
                               .keys = queries,
                               .queryWidth = width,
                               .valueWidth = width,
                               .scale = 0.125f,
                               .causal = true,
                               .sequenceFirst = true};
    const std::int64_t tensor = 12 * queries * width, sums = 12 * queries, all = 8 * tensor + sums;
    const double scores = 0.5 * 12 * static_cast<double>(queries * queries);
    auto part = [&](std::int64_t round, std::int64_t i) { return b.floats(round, all, i * tensor); };
    b.compute("attention", scores * static_cast<double>(2 * 2 * width + 5),
              4.0 * static_cast<double>(4 * tensor + sums), [&](std::int64_t round) {
                attention(b.context, shape, part(round, 0), part(round, 1), part(round, 2), {}, part(round, 3),
                          part(round, 8), scratchSpace(b.context));
              });
    b.compute("attention", scores * static_cast<double>(2 * 5 * width + 5),
              4.0 * static_cast<double>(8 * tensor + sums), [&](std::int64_t round) {
                attentionGrad(b.context, shape, part(round, 3), part(round, 0), part(round, 1), part(round, 2),
                              part(round, 4), part(round, 8), {}, part(round, 5), part(round, 6), part(round, 7),
                              scratchSpace(b.context));
              });
  }
}

void rows(Benchmark &b) {
  for (std::int64_t count : {128, 2048}) {
    const NormShape norm{.rows = count, .columns = 384};
    const std::int64_t x = count * 384, all = 3 * x + 2 * count + 4 * 384;
    auto at = [&](std::int64_t round, std::int64_t offset) { return b.floats(round, all, offset); };
    const std::int64_t gamma = 3 * x, mean = gamma + 4 * 384;
    b.compute("normalization", 8.0 * static_cast<double>(x), 8.0 * static_cast<double>(x), [&](std::int64_t round) {
      layerNorm(b.context, norm, at(round, 0), at(round, gamma), at(round, gamma), at(round, x), at(round, mean),
                at(round, mean + count));
    });
    b.compute("normalization", 16.0 * static_cast<double>(x), 12.0 * static_cast<double>(x), [&](std::int64_t round) {
      layerNormGrad(b.context, norm, at(round, 0), at(round, x), at(round, gamma), at(round, mean),
                    at(round, mean + count), at(round, 2 * x), at(round, gamma + 384), at(round, gamma + 768),
                    scratchSpace(b.context));
    });
    b.compute("softmax", 5.0 * static_cast<double>(x), 8.0 * static_cast<double>(x), [&](std::int64_t round) {
      softmax(b.context, {.outer = count, .count = 384}, at(round, 0), at(round, x));
    });
  }
}

/// Loops as the emitter writes them. `operations`: counted as the compiler counts a tanh GELU.
void loops(Benchmark &b) {
  constexpr double geluOperations = 20;
  for (std::int64_t count : {4096, 1 << 19, 1 << 21}) {
    const auto elements = static_cast<double>(count);
    b.compute("loop_memory", elements, 12 * elements, [&](std::int64_t round) {
      const float *x = b.floats(round, 3 * count, 0), *y = b.floats(round, 3 * count, count);
      float *out = b.floats(round, 3 * count, 2 * count);
      parallelFor(b.context, count, 8192, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i)
          out[i] = x[i] + y[i];
      });
    });
    b.compute("loop_flops", geluOperations * elements, 8 * elements, [&](std::int64_t round) {
      const float *x = b.floats(round, 2 * count, 0);
      float *out = b.floats(round, 2 * count, count);
      parallelFor(b.context, count, 8192, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i)
          out[i] = scalar::geluTanh(x[i]);
      });
    });
  }
}

void movesAndSums(Benchmark &b) {
  for (std::int64_t count : {128, 2048}) {
    const std::int64_t columns = 1536, x = count * columns;
    b.compute("reduce", static_cast<double>(x), 4.0 * static_cast<double>(x + columns), [&](std::int64_t round) {
      reduceSum(b.context, {.rank = 2, .dims = {count, columns}, .reduced = {true, false}},
                b.floats(round, x + columns, 0), b.floats(round, x + columns, x));
    });
    b.compute("move", static_cast<double>(x), 8.0 * static_cast<double>(x), [&](std::int64_t round) {
      const float *from = b.floats(round, 2 * x, 0);
      float *to = b.floats(round, 2 * x, x);
      copyStrided(
          b.context,
          {.rank = 3, .dims = {count, 24, 64}, .fromStrides = {columns, 64, 1}, .toStrides = {64, count * 64, 1}},
          bits(from), bits(to));
    });
  }
}

void optimizers(Benchmark &b) {
  for (std::int64_t count : {1 << 14, 1 << 20}) {
    const double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weightDecay = 0.01;
    const std::int64_t step = 1;
    const AdamScalars scalars{.lr = &lr,
                              .beta1 = &beta1,
                              .beta2 = &beta2,
                              .epsilon = &epsilon,
                              .weightDecay = &weightDecay,
                              .step = &step,
                              .decoupled = true};
    b.compute("optimizer", 30.0 * static_cast<double>(count), 28.0 * static_cast<double>(count),
              [&](std::int64_t round) {
                auto part = [&](std::int64_t i) { return b.floats(round, 4 * count, i * count); };
                adam(b.context, count, scalars, part(0), part(1), part(2), part(3), part(0), part(2), part(3));
              });
  }
}

} // namespace

void calibrateCompute(Benchmark &benchmark) {
  products(benchmark);
  convolutions(benchmark);
  attentions(benchmark);
  rows(benchmark);
  loops(benchmark);
  movesAndSums(benchmark);
  optimizers(benchmark);
}

} // namespace fsdpc::rt
