// Normalisation, softmax, losses and reductions against f64.
#include "tests/runtime/kernels_support.h"

#include <functional>

namespace fsdpc::rt {
namespace {

TEST(KernelsLayerNorm, ForwardAndBackwardMatchFormulas) {
  for (const auto &[rows, columns] : {std::pair{1, 1}, {5, 7}, {37, 384}, {40, 33}, {3, 2048}, {3, 1030}}) {
    const std::int64_t n = rows * columns;
    const auto x = numbers(n, 1), gamma = numbers(columns, 2), beta = numbers(columns, 3), dy = numbers(n, 4);
    std::vector<double> y(n), dx(n), dgamma(columns), dbeta(columns);
    for (int i = 0; i < rows; ++i) {
      const float *const row = x.data() + i * columns, *const slope = dy.data() + i * columns;
      double mean = 0, variance = 0, sum = 0, weighted = 0;
      for (int j = 0; j < columns; ++j)
        mean += row[j] / double(columns);
      for (int j = 0; j < columns; ++j)
        variance += (row[j] - mean) * (row[j] - mean) / columns;
      const double rstd = 1 / std::sqrt(variance + 1e-3);
      for (int j = 0; j < columns; ++j) {
        const double normalized = (row[j] - mean) * rstd;
        y[i * columns + j] = normalized * gamma[j] + beta[j];
        sum += slope[j] * double(gamma[j]) / columns;
        weighted += slope[j] * double(gamma[j]) * normalized / columns;
        dgamma[j] += slope[j] * normalized;
        dbeta[j] += slope[j];
      }
      for (int j = 0; j < columns; ++j)
        dx[i * columns + j] = rstd * (slope[j] * double(gamma[j]) - sum - (row[j] - mean) * rstd * weighted);
    }
    for (const int threads : {1, 3}) {
      const Context c = contextOf(threads);
      const NormShape shape{rows, columns, 1e-3};
      const ScratchBuffer scratch(layerNormGradScratchBytes(shape));
      std::vector<float> out(n), mean(rows), rstd(rows), outGamma(columns), outBeta(columns);
      layerNorm(c, shape, x.data(), gamma.data(), beta.data(), out.data(), mean.data(), rstd.data());
      EXPECT_LT(distance(out, y), 2e-6);
      out = dy; // in place
      layerNormGrad(c, shape, out.data(), x.data(), gamma.data(), mean.data(), rstd.data(), out.data(), outGamma.data(),
                    outBeta.data(), scratch.workspace());
      EXPECT_LT(distance(out, dx), 5e-6);
      EXPECT_LT(distance(outGamma, dgamma), 2e-6);
      EXPECT_LT(distance(outBeta, dbeta), 2e-6);
      EXPECT_TRUE(scratch.borderIntact());
    }
  }
}

TEST(KernelsRmsNorm, ForwardAndBackwardMatchFormulas) {
  for (const auto &[rows, columns] : {std::pair{1, 1}, {5, 7}, {37, 384}, {40, 33}, {3, 2048}, {3, 1030}}) {
    const std::int64_t n = rows * columns;
    const auto x = numbers(n, 1), gamma = numbers(columns, 2), dy = numbers(n, 4);
    std::vector<double> y(n), dx(n), dgamma(columns);
    for (int i = 0; i < rows; ++i) {
      const float *const row = x.data() + i * columns, *const slope = dy.data() + i * columns;
      double power = 0, weighted = 0;
      for (int j = 0; j < columns; ++j)
        power += row[j] * double(row[j]) / columns;
      const double rstd = 1 / std::sqrt(power + 1e-3);
      for (int j = 0; j < columns; ++j) {
        y[i * columns + j] = row[j] * rstd * gamma[j];
        weighted += slope[j] * double(gamma[j]) * row[j] * rstd / columns;
        dgamma[j] += slope[j] * row[j] * rstd;
      }
      for (int j = 0; j < columns; ++j)
        dx[i * columns + j] = rstd * (slope[j] * double(gamma[j]) - row[j] * rstd * weighted);
    }
    for (const int threads : {1, 3}) {
      const Context c = contextOf(threads);
      const NormShape shape{rows, columns, 1e-3};
      const ScratchBuffer scratch(rmsNormGradScratchBytes(shape));
      std::vector<float> out = x, rstd(rows), outGamma(columns);
      rmsNorm(c, shape, out.data(), gamma.data(), out.data(), rstd.data()); // in place
      EXPECT_LT(distance(out, y), 2e-6);
      out = dy;
      rmsNormGrad(c, shape, out.data(), x.data(), gamma.data(), rstd.data(), out.data(), outGamma.data(),
                  scratch.workspace());
      EXPECT_LT(distance(out, dx), 5e-6);
      EXPECT_LT(distance(outGamma, dgamma), 2e-6);
      EXPECT_TRUE(scratch.borderIntact());
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
    std::vector<double> y(n), dx(n), logs(n), dlogs(n);
    for (std::int64_t i = 0; i < shape.outer * shape.inner; ++i) {
      const std::int64_t start = i / shape.inner * shape.count * shape.inner + i % shape.inner;
      const auto each = [&](const std::function<void(std::int64_t)> &visit) {
        for (std::int64_t j = 0; j < shape.count; ++j)
          visit(start + j * shape.inner);
      };
      double sum = 0, product = 0, total = 0;
      each([&](std::int64_t k) { sum += std::exp(double(x[k])); });
      each([&](std::int64_t k) {
        y[k] = std::exp(double(x[k])) / sum;
        logs[k] = x[k] - std::log(sum);
        product += y[k] * dy[k];
        total += dy[k];
      });
      each([&](std::int64_t k) {
        dx[k] = y[k] * (dy[k] - product);
        dlogs[k] = dy[k] - y[k] * total;
      });
    }
    const Context c = contextOf(2);
    std::vector<float> out = x, slope = dy;
    softmax(c, shape, out.data(), out.data());
    EXPECT_LT(distance(out, y), 2e-6);
    softmaxGrad(c, shape, out.data(), slope.data(), slope.data());
    EXPECT_LT(distance(slope, dx), 2e-6);
    logSoftmax(c, shape, x.data(), out.data());
    EXPECT_LT(distance(out, logs), 2e-6);
    logSoftmaxGrad(c, shape, out.data(), dy.data(), slope.data());
    EXPECT_LT(distance(slope, dlogs), 1e-5);
  }
}

void checkCrossEntropy(std::int64_t classes) {
  const std::int64_t rows = 7;
  const double smoothing = 0.1;
  const auto x = numbers(rows * classes, 7), dterms = numbers(rows, 8);
  const std::vector<std::int64_t> labels = {0, classes - 1, -100, 5, 3, -100, classes / 2};
  std::vector<double> terms(rows), dx(rows * classes);
  for (std::int64_t i = 0; i < rows; ++i) {
    if (labels[i] == -100)
      continue;
    double sum = 0, mean = 0;
    for (std::int64_t j = 0; j < classes; ++j) {
      sum += std::exp(double(x[i * classes + j]));
      mean += x[i * classes + j] / double(classes);
    }
    terms[i] = std::log(sum) - (1 - smoothing) * x[i * classes + labels[i]] - smoothing * mean;
    for (std::int64_t j = 0; j < classes; ++j)
      dx[i * classes + j] = dterms[i] * (std::exp(double(x[i * classes + j])) / sum - smoothing / classes -
                                         (j == labels[i] ? 1 - smoothing : 0));
  }
  const LossShape shape{rows, classes, -100, smoothing};
  std::vector<float> out(rows), lse(rows), slope = x;
  crossEntropy(contextOf(2), shape, x.data(), labels.data(), out.data(), lse.data());
  EXPECT_LT(distance(out, terms), 1e-6);
  crossEntropyGrad(contextOf(2), shape, dterms.data(), slope.data(), labels.data(), lse.data(), slope.data());
  EXPECT_LT(distance(slope, dx), 1e-6);
}

TEST(KernelsLoss, CrossEntropyWithSmoothingAndIgnoredLabelsMatchesFormulas) {
  for (const std::int64_t classes : {13, 1028, 2051})
    checkCrossEntropy(classes);
}

TEST(KernelsLoss, NllPicksTheLabelAndIgnores) {
  const auto x = numbers(3 * 4, 9);
  const std::vector<std::int64_t> labels = {2, -1, 0};
  const std::vector<float> dterms = {2, 3, 5};
  const LossShape shape{3, 4, -1, 0};
  std::vector<float> terms(3), dx(12, NAN);
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
    std::vector<float> out(count);
    reduceSum(contextOf(3), shape, x.data(), out.data());
    EXPECT_LT(distance(out, sum), 1e-6) << mask;
    reduceProd(contextOf(3), shape, x.data(), out.data());
    EXPECT_LT(distance(out, product), 1e-6) << mask;
    reduceMax(contextOf(3), shape, x.data(), out.data());
    EXPECT_EQ(distance(out, largest), 0) << mask;
    reduceMin(contextOf(3), shape, x.data(), out.data());
    EXPECT_EQ(distance(out, smallest), 0) << mask;
  }
}

TEST(KernelsReduce, LongSumsKeepTheirDigits) {
  const std::vector<float> x(3'000'000, 0.1f);
  float total = 0;
  reduceSum(contextOf(), {1, {3'000'000}, {true}}, x.data(), &total);
  EXPECT_NEAR(total, 3e6 * double(0.1f), 1);
  std::vector<float> columns(3);
  reduceSum(contextOf(), {2, {1'000'000, 3}, {true, false}}, x.data(), columns.data());
  for (const float column : columns)
    EXPECT_NEAR(column, 1e6 * double(0.1f), 1);
}

TEST(KernelsReduce, IntegersAddExactlyAndNaNIsTheLargest) {
  const std::vector<std::int64_t> integers = {1LL << 60, 1, -(1LL << 60), 2};
  std::int64_t total = 0;
  reduceSum(contextOf(), {1, {4}, {true}}, integers.data(), &total);
  EXPECT_EQ(total, 3);
  const std::vector<float> x = {1, NAN, 3, 2, 2, 1};
  std::vector<std::int64_t> where(2);
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
    std::vector<std::int64_t> where(lines), expected(lines);
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
  std::vector<std::int64_t> out(6);
  cumulativeSum(contextOf(), {1, 3, 2}, false, false, x.data(), out.data());
  EXPECT_EQ(out, (std::vector<std::int64_t>{1, 10, 3, 30, 6, 60}));
  cumulativeSum(contextOf(), {1, 3, 2}, true, true, x.data(), out.data());
  EXPECT_EQ(out, (std::vector<std::int64_t>{5, 50, 3, 30, 0, 0}));
}

} // namespace
} // namespace fsdpc::rt
