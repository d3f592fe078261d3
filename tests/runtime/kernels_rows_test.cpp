// Normalisation, rotary embedding, softmax, losses and reductions against f64.
#include "tests/runtime/kernels_references.h"

#include <utility>

namespace fsdpc::rt {
namespace {

constexpr std::pair<std::int64_t, std::int64_t> normSizes[] = {{1, 1},   {5, 7},    {37, 384},
                                                               {40, 33}, {3, 2048}, {3, 1030}};

TEST(KernelsLayerNorm, ForwardAndBackwardMatchFormulas) {
  for (const auto &[rows, columns] : normSizes) {
    const auto x = numbers(rows * columns, 1), gamma = numbers(columns, 2), beta = numbers(columns, 3),
               dy = numbers(rows * columns, 4);
    const NormShape shape{rows, columns, 1e-3};
    const NormReference expected(shape, true, x, gamma, beta, dy);
    for (const int threads : {1, 3}) {
      const Context c = contextOf(threads);
      const ScratchBuffer scratch(layerNormGradScratchBytes(shape));
      auto out = unwritten(x.size()), mean = unwritten(rows), rstd = unwritten(rows), outGamma = unwritten(columns),
           outBeta = unwritten(columns);
      layerNorm(c, shape, x.data(), gamma.data(), beta.data(), out.data(), mean.data(), rstd.data());
      EXPECT_LT(distance(out, expected.y), 2e-6);
      out = dy; // in place
      layerNormGrad(c, shape, out.data(), x.data(), gamma.data(), mean.data(), rstd.data(), out.data(), outGamma.data(),
                    outBeta.data(), scratch.workspace());
      EXPECT_LT(distance(out, expected.dx), 5e-6);
      EXPECT_LT(distance(outGamma, expected.dgamma), 2e-6);
      EXPECT_LT(distance(outBeta, expected.dbeta), 2e-6);
      EXPECT_TRUE(scratch.borderIntact());
    }
  }
}

TEST(KernelsRmsNorm, ForwardAndBackwardMatchFormulas) {
  for (const auto &[rows, columns] : normSizes) {
    const auto x = numbers(rows * columns, 1), gamma = numbers(columns, 2), dy = numbers(rows * columns, 4);
    const NormShape shape{rows, columns, 1e-3};
    const NormReference expected(shape, false, x, gamma, {}, dy);
    for (const int threads : {1, 3}) {
      const Context c = contextOf(threads);
      const ScratchBuffer scratch(rmsNormGradScratchBytes(shape));
      auto out = x, rstd = unwritten(rows), outGamma = unwritten(columns);
      rmsNorm(c, shape, out.data(), gamma.data(), out.data(), rstd.data()); // in place
      EXPECT_LT(distance(out, expected.y), 2e-6);
      out = dy;
      rmsNormGrad(c, shape, out.data(), x.data(), gamma.data(), rstd.data(), out.data(), outGamma.data(),
                  scratch.workspace());
      EXPECT_LT(distance(out, expected.dx), 5e-6);
      EXPECT_LT(distance(outGamma, expected.dgamma), 2e-6);
      EXPECT_TRUE(scratch.borderIntact());
    }
  }
}

/// Layer or RMS normalisation of a matrix, and the results of a kernel.
struct NormRun {
  NormShape shape;
  bool centered;
  std::vector<float> gamma, beta, y, mean, rstd, dx, dgamma, dbeta;

  NormRun(const NormShape &shape, bool centered)
      : shape(shape), centered(centered), gamma(numbers(shape.columns, 2)), beta(numbers(shape.columns, 3)),
        y(unwritten(shape.rows * shape.columns)), mean(unwritten(shape.rows)), rstd(mean), dx(y),
        dgamma(unwritten(gamma.size())), dbeta(dgamma) {}

  /// y and sum are written to the given addresses.
  void forward(const Context &c, const float *x, const float *residual, float *yAt, float *sumAt) {
    if (centered)
      layerNorm(c, shape, x, gamma.data(), beta.data(), residual, yAt, mean.data(), rstd.data(), sumAt);
    else
      rmsNorm(c, shape, x, gamma.data(), residual, yAt, rstd.data(), sumAt);
  }
  void backward(const Context &c, const float *dy, const float *x, const float *addend, float *dxAt) {
    const ScratchBuffer scratch(centered ? layerNormGradScratchBytes(shape) : rmsNormGradScratchBytes(shape));
    if (centered)
      layerNormGrad(c, shape, dy, x, gamma.data(), mean.data(), rstd.data(), addend, dxAt, dgamma.data(), dbeta.data(),
                    scratch.workspace());
    else
      rmsNormGrad(c, shape, dy, x, gamma.data(), rstd.data(), addend, dxAt, dgamma.data(), scratch.workspace());
    EXPECT_TRUE(scratch.borderIntact());
  }
};

std::vector<float> sumOf(const std::vector<float> &a, const std::vector<float> &b) {
  std::vector<float> sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    sum[i] = a[i] + b[i];
  return sum;
}

/// Checks a norm of x + residual, and its derivative plus addend. Results match f64, and are bitwise identical to a
/// separate add before and after.
void expectFusedSums(const Context &c, const NormShape &shape, bool centered) {
  const std::int64_t n = shape.rows * shape.columns;
  const auto x = numbers(n, 1), residual = numbers(n, 5), dy = numbers(n, 4), addend = numbers(n, 6);
  const auto sum = sumOf(x, residual);
  NormRun apart(shape, centered), inside(shape, centered);
  apart.forward(c, sum.data(), nullptr, apart.y.data(), nullptr);
  apart.backward(c, dy.data(), sum.data(), nullptr, apart.dx.data());

  const NormReference expected(shape, centered, sum, inside.gamma, inside.beta, dy);
  std::vector<float> stored = unwritten(x.size());
  inside.forward(c, x.data(), residual.data(), inside.y.data(), stored.data());
  inside.backward(c, dy.data(), stored.data(), addend.data(), inside.dx.data());
  EXPECT_LT(distance(inside.y, expected.y), 2e-6);
  EXPECT_EQ(stored, sum);
  EXPECT_EQ(inside.y, apart.y);
  EXPECT_EQ(inside.rstd, apart.rstd);
  EXPECT_EQ(inside.dx, sumOf(apart.dx, addend));
  EXPECT_EQ(inside.dgamma, apart.dgamma);
  if (centered) { // an RMS norm leaves both unwritten
    EXPECT_EQ(inside.mean, apart.mean);
    EXPECT_EQ(inside.dbeta, apart.dbeta);
  }
  for (std::size_t i = 0; i < stored.size(); ++i)
    EXPECT_LE(errorOf(inside.dx[i], expected.dx[i] + addend[i]), 5e-6 * (1 + std::abs(expected.dx[i])));

  std::vector<float> first = x, second = residual;
  inside.forward(c, first.data(), second.data(), first.data(), second.data());
  EXPECT_EQ(first, apart.y);
  EXPECT_EQ(second, sum);
  first = x, second = residual;
  inside.forward(c, first.data(), second.data(), second.data(), first.data());
  EXPECT_EQ(second, apart.y);
  EXPECT_EQ(first, sum);
  first = addend;
  inside.backward(c, dy.data(), sum.data(), first.data(), first.data());
  EXPECT_EQ(first, inside.dx);
  EXPECT_EQ(inside.dgamma, apart.dgamma);
}

TEST(KernelsNormSums, AreRoundedAndAddedAsByANodeOfTheirOwn) {
  for (const auto &[rows, columns] : normSizes)
    for (const int threads : {1, 3})
      for (const bool centered : {true, false})
        expectFusedSums(contextOf(threads), {rows, columns, 1e-3}, centered);
}

TEST(KernelsRotary, ForwardAndBackwardMatchFormulas) {
  // Tables of positions on the second axis (sequence first), on the third, and of every sample.
  for (const RotaryShape shape : {RotaryShape{{2, 7, 3}, {0, 16, 0}, 16}, RotaryShape{{2, 3, 65}, {0, 0, 6}, 6},
                                  RotaryShape{{3, 2, 5}, {5 * 2, 0, 2}, 2}, RotaryShape{{1, 40, 9}, {0, 64, 0}, 64}}) {
    const std::int64_t w = shape.width, half = w / 2, rows = shape.dims[0] * shape.dims[1] * shape.dims[2];
    const std::int64_t n = rows * w;
    std::int64_t tableElements = w;
    for (int i = 0; i < 3; ++i)
      tableElements += (shape.dims[i] - 1) * shape.tableStrides[i];
    const auto x = numbers(n, 1), cos = numbers(tableElements, 2), sin = numbers(tableElements, 3);
    std::vector<double> forward(n), backward(n);
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t t = i / (shape.dims[1] * shape.dims[2]) * shape.tableStrides[0] +
                             i / shape.dims[2] % shape.dims[1] * shape.tableStrides[1] +
                             i % shape.dims[2] * shape.tableStrides[2];
      for (std::int64_t j = 0; j < half; ++j) {
        const double low = x[i * w + j], high = x[i * w + j + half];
        forward[i * w + j] = low * cos[t + j] - high * sin[t + j];
        forward[i * w + j + half] = high * cos[t + j + half] + low * sin[t + j + half];
        backward[i * w + j] = low * cos[t + j] + high * sin[t + j + half];
        backward[i * w + j + half] = high * cos[t + j + half] - low * sin[t + j];
      }
    }
    for (const int threads : {1, 3}) {
      std::vector<float> out = unwritten(n);
      rotary(contextOf(threads), shape, x.data(), cos.data(), sin.data(), out.data());
      EXPECT_LT(distance(out, forward), 2e-7);
      RotaryShape back = shape;
      back.transposed = true;
      out = x;
      rotary(contextOf(threads), back, out.data(), cos.data(), sin.data(), out.data()); // in place
      EXPECT_LT(distance(out, backward), 2e-7);
    }
  }
}

TEST(KernelsSoftmax, AnyAxisMatchesFormulas) {
  for (const SoftmaxShape shape :
       {SoftmaxShape{3, 17, 1}, {2, 5, 7}, {1, 1, 1}, {4, 100, 3}, {3, 1028, 1}, {2, 1501, 1}}) {
    const std::int64_t n = shape.outer * shape.count * shape.inner;
    auto x = numbers(n, 5);
    for (float &value : x)
      value *= 30; // far enough apart that the shift by the maximum matters
    const auto dy = numbers(n, 6);
    const SoftmaxReference expected(shape, x, dy);
    const Context c = contextOf(2);
    std::vector<float> out = x, slope = dy;
    softmax(c, shape, out.data(), out.data());
    EXPECT_LT(distance(out, expected.y), 2e-6);
    softmaxGrad(c, shape, out.data(), slope.data(), slope.data());
    EXPECT_LT(distance(slope, expected.dx), 2e-6);
    out = slope = unwritten(n);
    logSoftmax(c, shape, x.data(), out.data());
    EXPECT_LT(distance(out, expected.logs), 2e-6);
    logSoftmaxGrad(c, shape, out.data(), dy.data(), slope.data());
    EXPECT_LT(distance(slope, expected.dlogs), 1e-5);
  }
}

TEST(KernelsLoss, CrossEntropyWithSmoothingAndIgnoredLabelsMatchesFormulas) {
  for (const std::int64_t classes : {13, 1028, 2051}) {
    const auto x = numbers(7 * classes, 7), dterms = numbers(7, 8);
    const std::vector<std::int64_t> labels = {0, classes - 1, -100, 5, 3, -100, classes / 2};
    const LossShape shape{7, classes, -100, 0.1};
    const CrossEntropyReference expected(shape, x, labels, dterms);
    auto out = unwritten(7), lse = unwritten(7), slope = x;
    crossEntropy(contextOf(2), shape, x.data(), labels.data(), out.data(), lse.data());
    EXPECT_LT(distance(out, expected.terms), 1e-6);
    crossEntropyGrad(contextOf(2), shape, dterms.data(), slope.data(), labels.data(), lse.data(), slope.data());
    EXPECT_LT(distance(slope, expected.dx), 1e-6);
  }
}

TEST(KernelsLoss, NllPicksTheLabelAndIgnores) {
  const auto x = numbers(3 * 4, 9);
  const std::vector<std::int64_t> labels = {2, -1, 0};
  const std::vector<float> dterms = {2, 3, 5};
  const LossShape shape{3, 4, -1, 0};
  auto terms = unwritten(3), dx = unwritten(12);
  nll(contextOf(), shape, x.data(), labels.data(), terms.data());
  EXPECT_EQ(terms, (std::vector<float>{-x[2], 0, -x[8]}));
  nllGrad(contextOf(), shape, dterms.data(), labels.data(), dx.data());
  EXPECT_EQ(dx, (std::vector<float>{0, 0, -2, 0, 0, 0, 0, 0, -5, 0, 0, 0}));
}

TEST(KernelsLoss, ALabelThatIsNoClassGivesNaN) {
  const std::vector<float> x(4, 0);
  const std::vector<std::int64_t> labels = {4};
  float term = 0, lse = 0;
  crossEntropy(contextOf(), {1, 4, -100, 0}, x.data(), labels.data(), &term, &lse);
  EXPECT_TRUE(std::isnan(term));
}

TEST(KernelsReduce, EveryChoiceOfAxesMatchesLoops) {
  const std::int64_t dims[4] = {3, 5, 4, 7};
  const auto x = numbers(3 * 5 * 4 * 7, 10);
  for (int mask = 0; mask < 16; ++mask) {
    ReduceShape shape{4, {3, 5, 4, 7}, {}};
    std::int64_t count = 1;
    for (int i = 0; i < 4; ++i) {
      shape.reduced[i] = mask >> i & 1;
      count *= shape.reduced[i] ? 1 : dims[i];
    }
    std::vector<double> sum(count, 0), product(count, 1), largest(count, -INFINITY), smallest(count, INFINITY);
    for (std::int64_t flat = 0; flat < 420; ++flat) {
      const std::int64_t at[4] = {flat / 140, flat / 28 % 5, flat / 7 % 4, flat % 7};
      std::int64_t to = 0;
      for (int i = 0; i < 4; ++i)
        to = shape.reduced[i] ? to : to * dims[i] + at[i];
      sum[to] += x[flat];
      product[to] *= x[flat];
      largest[to] = std::max(largest[to], double(x[flat]));
      smallest[to] = std::min(smallest[to], double(x[flat]));
    }
    std::vector<float> out = unwritten(count);
    reduceSum(contextOf(3), shape, x.data(), out.data());
    EXPECT_LT(distance(out, sum), 1e-6) << mask;
    out = unwritten(count);
    reduceProd(contextOf(3), shape, x.data(), out.data());
    EXPECT_LT(distance(out, product), 1e-6) << mask;
    out = unwritten(count);
    reduceMax(contextOf(3), shape, x.data(), out.data());
    EXPECT_EQ(distance(out, largest), 0) << mask;
    out = unwritten(count);
    reduceMin(contextOf(3), shape, x.data(), out.data());
    EXPECT_EQ(distance(out, smallest), 0) << mask;
  }
}

TEST(KernelsReduce, LongSumsKeepTheirDigits) {
  const std::vector<float> x(3'000'000, 0.1f);
  float total = 0;
  reduceSum(contextOf(), {1, {3'000'000}, {true}}, x.data(), &total);
  EXPECT_NEAR(total, 3e6 * double(0.1f), 1);
  std::vector<float> columns = unwritten(3);
  reduceSum(contextOf(), {2, {1'000'000, 3}, {true, false}}, x.data(), columns.data());
  for (const float column : columns)
    EXPECT_NEAR(column, 1e6 * double(0.1f), 1);
}

TEST(KernelsReduce, WhatCancelsLeavesNothing) {
  const std::vector<float> x = {0.6f, 0.00031f, 0.0777f, -0.6f, -0.00031f, -0.0777f};
  float total = NAN;
  reduceSum(contextOf(), {2, {2, 3}, {true, true}}, x.data(), &total);
  EXPECT_EQ(total, 0);
}

TEST(KernelsReduce, IntegersAddExactlyAndNaNIsTheLargest) {
  const std::vector<std::int64_t> integers = {1LL << 60, 1, -(1LL << 60), 2};
  std::int64_t total = 0;
  reduceSum(contextOf(), {1, {4}, {true}}, integers.data(), &total);
  EXPECT_EQ(total, 3);
  const std::vector<float> x = {1, NAN, 3, 2, 2, 1};
  std::vector<std::int64_t> where(2, -1);
  argMax(contextOf(), {2, 3, 1}, x.data(), where.data());
  EXPECT_EQ(where, (std::vector<std::int64_t>{1, 0}));
  float largest = 0;
  reduceMax(contextOf(), {1, {3}, {true}}, x.data(), &largest);
  EXPECT_TRUE(std::isnan(largest));
}

TEST(KernelsReduce, TheFirstOfTheLargestIsFoundInLinesOfAnyLength) {
  for (const AxisShape shape : {AxisShape{3, 700, 1}, {2, 5000, 1}, {2, 90, 5}}) {
    const std::int64_t lines = shape.outer * shape.inner;
    std::vector<float> x(static_cast<std::size_t>(lines * shape.count));
    const auto noise = numbers(static_cast<std::int64_t>(x.size()), 11);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = std::round(noise[i] * 8); // many are equal
    std::vector<std::int64_t> where(lines, -1), expected(lines);
    for (std::int64_t line = 0; line < lines; ++line) {
      const auto at = [&](std::int64_t j) {
        return x[(line / shape.inner * shape.count + j) * shape.inner + line % shape.inner];
      };
      for (std::int64_t j = 1; j < shape.count; ++j)
        if (at(j) > at(expected[line]))
          expected[line] = j;
    }
    argMax(contextOf(), shape, x.data(), where.data());
    EXPECT_EQ(where, expected);
  }
}

TEST(KernelsReduce, CumulativeSumsRunBothWays) {
  const std::vector<std::int64_t> x = {1, 10, 2, 20, 3, 30}; // [3, 2]
  std::vector<std::int64_t> out(6, -1);
  cumulativeSum(contextOf(), {1, 3, 2}, false, false, x.data(), out.data());
  EXPECT_EQ(out, (std::vector<std::int64_t>{1, 10, 3, 30, 6, 60}));
  out.assign(6, -1);
  cumulativeSum(contextOf(), {1, 3, 2}, true, true, x.data(), out.data());
  EXPECT_EQ(out, (std::vector<std::int64_t>{5, 50, 3, 30, 0, 0}));
}

} // namespace
} // namespace fsdpc::rt
