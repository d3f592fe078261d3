// Row kernels of the cuda target, in addition to the kernel tests of both targets
// (tests/runtime/kernels_rows_test.cpp): Bfloat16, and sums whose order does not depend on the device.
#include "tests/emulated/bfloat16_support.h"

#include <utility>

namespace fsdpc::rt {
namespace {

constexpr std::pair<std::int64_t, std::int64_t> normSizes[] = {{5, 7}, {37, 384}, {3, 2048}, {3, 1030}};

/// G: float or Bfloat16, the type of dgamma and dbeta.
template <class G>
struct NormGradients {
  std::vector<Bfloat16> dx;
  std::vector<G> dgamma, dbeta;
};

struct NormTest {
  NormShape shape;
  std::vector<float> x = bfloat16Numbers(shape.rows * shape.columns, 1), gamma = bfloat16Numbers(shape.columns, 2),
                     beta = bfloat16Numbers(shape.columns, 3), dy = bfloat16Numbers(shape.rows * shape.columns, 4);
  std::vector<Bfloat16> x16 = roundedToBfloat16(x), gamma16 = roundedToBfloat16(gamma),
                        beta16 = roundedToBfloat16(beta), dy16 = roundedToBfloat16(dy),
                        y = unwritten<Bfloat16>(x.size());
  std::vector<float> mean = unwritten(shape.rows), rstd = unwritten(shape.rows);

  /// Called after layerNorm.
  template <class G>
  NormGradients<G> gradients(bool centered) const {
    NormGradients<G> g{dy16, unwritten<G>(gamma.size()), unwritten<G>(gamma.size())}; // dx in place of dy
    const ScratchBuffer scratch(centered ? layerNormGradScratchBytes(shape) : rmsNormGradScratchBytes(shape));
    if (centered)
      layerNormGrad(contextOf(), shape, g.dx.data(), x16.data(), gamma16.data(), mean.data(), rstd.data(), g.dx.data(),
                    g.dgamma.data(), g.dbeta.data(), scratch.workspace());
    else
      rmsNormGrad(contextOf(), shape, g.dx.data(), x16.data(), gamma16.data(), rstd.data(), g.dx.data(),
                  g.dgamma.data(), scratch.workspace());
    EXPECT_TRUE(scratch.borderIntact());
    return g;
  }
};

TEST(Bfloat16Norms, ResultsAreRoundedOnceAndFloatGradientsNotAtAll) {
  for (const auto &[rows, columns] : normSizes)
    for (const bool centered : {true, false}) {
      NormTest test{{rows, columns, 1e-3}};
      const NormReference expected(test.shape, centered, test.x, test.gamma, test.beta, test.dy);
      if (centered)
        layerNorm(contextOf(), test.shape, test.x16.data(), test.gamma16.data(), test.beta16.data(), test.y.data(),
                  test.mean.data(), test.rstd.data());
      else
        rmsNorm(contextOf(), test.shape, test.x16.data(), test.gamma16.data(), test.y.data(), test.rstd.data());
      EXPECT_LT(excessOverOneRounding(test.y, expected.y), 2e-6);
      const auto rounded = test.gradients<Bfloat16>(centered);
      EXPECT_LT(excessOverOneRounding(rounded.dx, expected.dx), 5e-6);
      EXPECT_LT(excessOverOneRounding(rounded.dgamma, expected.dgamma), 2e-6);
      const auto exact = test.gradients<float>(centered);
      EXPECT_LT(distance(exact.dgamma, expected.dgamma), 2e-6);
      if (centered) {
        EXPECT_LT(excessOverOneRounding(rounded.dbeta, expected.dbeta), 2e-6);
        EXPECT_LT(distance(exact.dbeta, expected.dbeta), 2e-6);
      }
    }
}

std::vector<Bfloat16> sumOf(const std::vector<Bfloat16> &a, const std::vector<Bfloat16> &b) {
  std::vector<Bfloat16> sum;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum.push_back(Bfloat16(static_cast<float>(a[i]) + static_cast<float>(b[i])));
  return sum;
}

TEST(Bfloat16Norms, SumsInsideAreRoundedAsByANodeOfTheirOwn) {
  for (const auto &[rows, columns] : normSizes) {
    const NormTest test{{rows, columns, 1e-3}};
    const auto residual = roundedToBfloat16(numbers(rows * columns, 7)), sum = sumOf(test.x16, residual);
    const Context c = contextOf();
    const ScratchBuffer scratch(layerNormGradScratchBytes(test.shape));
    const Bfloat16 *const gamma = test.gamma16.data(), *const beta = test.beta16.data();
    std::vector<Bfloat16> y = unwritten<Bfloat16>(sum.size()), yOfSum = y, stored = y, dx = y, dxAlone = y;
    auto mean = unwritten(rows), rstd = unwritten(rows), dgamma = unwritten(columns), dbeta = unwritten(columns);

    layerNorm(c, test.shape, sum.data(), gamma, beta, yOfSum.data(), mean.data(), rstd.data());
    layerNorm(c, test.shape, test.x16.data(), gamma, beta, residual.data(), y.data(), mean.data(), rstd.data(),
              stored.data());
    EXPECT_EQ(asFloats(stored), asFloats(sum));
    EXPECT_EQ(asFloats(y), asFloats(yOfSum));
    layerNormGrad(c, test.shape, test.dy16.data(), sum.data(), gamma, mean.data(), rstd.data(), dxAlone.data(),
                  dgamma.data(), dbeta.data(), scratch.workspace());
    layerNormGrad(c, test.shape, test.dy16.data(), sum.data(), gamma, mean.data(), rstd.data(), residual.data(),
                  dx.data(), dgamma.data(), dbeta.data(), scratch.workspace());
    EXPECT_EQ(asFloats(dx), asFloats(sumOf(dxAlone, residual)));

    y = yOfSum = stored = dx = dxAlone = unwritten<Bfloat16>(sum.size());
    rmsNorm(c, test.shape, sum.data(), gamma, yOfSum.data(), rstd.data());
    rmsNorm(c, test.shape, test.x16.data(), gamma, residual.data(), y.data(), rstd.data(), stored.data());
    EXPECT_EQ(asFloats(stored), asFloats(sum));
    EXPECT_EQ(asFloats(y), asFloats(yOfSum));
    rmsNormGrad(c, test.shape, test.dy16.data(), sum.data(), gamma, rstd.data(), dxAlone.data(), dgamma.data(),
                scratch.workspace());
    rmsNormGrad(c, test.shape, test.dy16.data(), sum.data(), gamma, rstd.data(), residual.data(), dx.data(),
                dgamma.data(), scratch.workspace());
    EXPECT_EQ(asFloats(dx), asFloats(sumOf(dxAlone, residual)));
  }
}

TEST(Bfloat16Softmax, EveryAxisIsComputedInFloatAndRoundedOnce) {
  for (const SoftmaxShape shape : {SoftmaxShape{3, 17, 1}, {2, 5, 7}, {4, 256, 1}, {3, 1032, 1}, {2, 1501, 1}}) {
    const std::int64_t n = shape.outer * shape.count * shape.inner;
    const auto x = bfloat16Numbers(n, 5), dy = bfloat16Numbers(n, 6);
    const SoftmaxReference expected(shape, x, dy);
    std::vector<Bfloat16> y = roundedToBfloat16(x), logs = y, dx = roundedToBfloat16(dy), dlogs = dx;
    softmax(contextOf(), shape, y.data(), y.data());
    EXPECT_LT(excessOverOneRounding(y, expected.y), 2e-6);
    logSoftmax(contextOf(), shape, logs.data(), logs.data());
    EXPECT_LT(excessOverOneRounding(logs, expected.logs), 2e-6);
    // The derivatives start from the rounded results.
    const std::vector<float> kept = asFloats(y), keptLogs = asFloats(logs);
    std::vector<double> fromKept(kept.size()), fromLogs(kept.size());
    for (std::int64_t i = 0; i < shape.outer * shape.inner; ++i) {
      const std::int64_t start = i / shape.inner * shape.count * shape.inner + i % shape.inner;
      double product = 0, total = 0;
      for (std::int64_t j = 0, k = start; j < shape.count; ++j, k += shape.inner) {
        product += double(kept[k]) * dy[k];
        total += dy[k];
      }
      for (std::int64_t j = 0, k = start; j < shape.count; ++j, k += shape.inner) {
        fromKept[k] = kept[k] * (dy[k] - product);
        fromLogs[k] = dy[k] - std::exp(double(keptLogs[k])) * total;
      }
    }
    softmaxGrad(contextOf(), shape, y.data(), dx.data(), dx.data());
    EXPECT_LT(excessOverOneRounding(dx, fromKept), 2e-6);
    logSoftmaxGrad(contextOf(), shape, logs.data(), dlogs.data(), dlogs.data());
    EXPECT_LT(excessOverOneRounding(dlogs, fromLogs), 1e-5);
  }
}

TEST(Bfloat16Losses, TermsStayFloatAndOnlyTheGradientIsRounded) {
  for (const std::int64_t classes : {13, 1032, 2051}) {
    const auto x = bfloat16Numbers(7 * classes, 7), dterms = numbers(7, 8);
    const std::vector<std::int64_t> labels = {0, classes - 1, -100, 5, 3, -100, classes / 2};
    const LossShape shape{7, classes, -100, 0.1};
    const CrossEntropyReference expected(shape, x, labels, dterms);
    std::vector<Bfloat16> logits = roundedToBfloat16(x);
    auto terms = unwritten(7), lse = unwritten(7);
    crossEntropy(contextOf(), shape, logits.data(), labels.data(), terms.data(), lse.data());
    EXPECT_LT(distance(terms, expected.terms), 1e-6);
    crossEntropyGrad(contextOf(), shape, dterms.data(), logits.data(), labels.data(), lse.data(), logits.data());
    EXPECT_LT(excessOverOneRounding(logits, expected.dx), 1e-6);
  }
}

TEST(Bfloat16Losses, NllPicksTheLabelAndIgnores) {
  const auto x = bfloat16Numbers(3 * 4, 9);
  const auto x16 = roundedToBfloat16(x);
  const std::vector<std::int64_t> labels = {2, -1, 0};
  const std::vector<float> dterms = {2, 3, 5};
  const LossShape shape{3, 4, -1, 0};
  auto terms = unwritten(3);
  auto dx = unwritten<Bfloat16>(12);
  nll(contextOf(), shape, x16.data(), labels.data(), terms.data());
  EXPECT_EQ(terms, (std::vector<float>{-x[2], 0, -x[8]}));
  nllGrad(contextOf(), shape, dterms.data(), labels.data(), dx.data());
  EXPECT_EQ(asFloats(dx), (std::vector<float>{0, 0, -2, 0, 0, 0, 0, 0, -5, 0, 0, 0}));
}

void checkBfloat16Reductions(std::int64_t rows, std::int64_t columns) {
  const auto x = bfloat16Numbers(rows * columns, 10);
  const auto x16 = roundedToBfloat16(x);
  for (const bool alongColumns : {true, false}) {
    const ReduceShape shape{2, {rows, columns}, {!alongColumns, alongColumns}};
    const std::int64_t count = alongColumns ? rows : columns;
    std::vector<double> sums(count), products(count, 1), largest(count, -INFINITY), smallest(count, INFINITY);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const std::int64_t to = alongColumns ? i / columns : i % columns;
      sums[to] += x[i];
      products[to] *= x[i];
      largest[to] = std::max(largest[to], double(x[i]));
      smallest[to] = std::min(smallest[to], double(x[i]));
    }
    auto floats = unwritten(count);
    auto out = unwritten<Bfloat16>(count);
    reduceSum(contextOf(), shape, x16.data(), floats.data());
    EXPECT_LT(distance(floats, sums), 1e-6);
    reduceSum(contextOf(), shape, x16.data(), out.data());
    EXPECT_LT(excessOverOneRounding(out, sums), 1e-6);
    out = unwritten<Bfloat16>(count);
    reduceProd(contextOf(), shape, x16.data(), out.data());
    EXPECT_LT(excessOverOneRounding(out, products), 1e-6);
    out = unwritten<Bfloat16>(count);
    reduceMax(contextOf(), shape, x16.data(), out.data());
    EXPECT_EQ(distance(asFloats(out), largest), 0);
    out = unwritten<Bfloat16>(count);
    reduceMin(contextOf(), shape, x16.data(), out.data());
    EXPECT_EQ(distance(asFloats(out), smallest), 0);
  }
}

/// A thread takes one column, or eight where they divide the columns.
TEST(Bfloat16Reductions, SumsAndProductsAreRoundedOnceAndExtremesNotAtAll) {
  for (const std::int64_t columns : {1500, 1504, 8})
    checkBfloat16Reductions(9, columns);
}

TEST(Bfloat16Reductions, AViewThatBeginsAtAnyElementHasTheSameSums) {
  const std::int64_t rows = 700, columns = 64;
  const auto x16 = roundedToBfloat16(bfloat16Numbers(rows * columns, 10));
  std::vector<Bfloat16> moved(x16.size() + 1, Bfloat16(NAN));
  std::copy(x16.begin(), x16.end(), moved.begin() + 1);
  auto aligned = unwritten(columns), unaligned = unwritten(columns);
  reduceSum(contextOf(), {2, {rows, columns}, {true, false}}, x16.data(), aligned.data());
  reduceSum(contextOf(), {2, {rows, columns}, {true, false}}, moved.data() + 1, unaligned.data());
  EXPECT_EQ(aligned, unaligned);
}

TEST(Bfloat16Reductions, RunningSumsAreKeptInFloat) {
  const std::vector<Bfloat16> x(1000, Bfloat16(1.0f)); // as Bfloat16, 256 + 1 is 256
  auto out = unwritten<Bfloat16>(1000);
  cumulativeSum(contextOf(), {1, 1000, 1}, false, false, x.data(), out.data());
  for (int i = 0; i < 1000; ++i)
    ASSERT_EQ(out[i].bits, Bfloat16(static_cast<float>(i + 1)).bits) << i;
  std::vector<std::int64_t> where(1, -1);
  argMax(contextOf(), {1, 1000, 1}, out.data(), where.data());
  EXPECT_EQ(static_cast<float>(out[where[0]]), 1000);
  EXPECT_TRUE(where[0] == 0 || static_cast<float>(out[where[0] - 1]) < 1000);
}

// ---- the device

/// The results of every kernel that sums, on a device with so many multiprocessors.
std::vector<float> sumsOnDeviceOf(int multiprocessors) {
  Device device = deviceOf(contextOf());
  device.multiprocessors = multiprocessors;
  Context c = contextOf();
  c.target = &device;
  const std::int64_t rows = 300, columns = 200, n = rows * columns;
  const auto x = numbers(n, 1), gamma = numbers(columns, 2), dy = numbers(n, 3);
  const NormShape shape{rows, columns, 1e-5};
  const ScratchBuffer scratch(layerNormGradScratchBytes(shape));
  auto y = unwritten(n), mean = unwritten(rows), rstd = mean, dx = y, dgamma = unwritten(columns), dbeta = dgamma,
       sums = dgamma, totals = mean, softmaxed = y;
  std::vector<float> all;
  layerNorm(c, shape, x.data(), gamma.data(), gamma.data(), y.data(), mean.data(), rstd.data());
  layerNormGrad(c, shape, dy.data(), x.data(), gamma.data(), mean.data(), rstd.data(), dx.data(), dgamma.data(),
                dbeta.data(), scratch.workspace());
  reduceSum(c, {2, {rows, columns}, {true, false}}, x.data(), sums.data());
  reduceSum(c, {2, {rows, columns}, {false, true}}, x.data(), totals.data());
  softmax(c, {rows, columns, 1}, x.data(), softmaxed.data());
  for (const auto *part : {&y, &mean, &rstd, &dx, &dgamma, &dbeta, &sums, &totals, &softmaxed})
    all.insert(all.end(), part->begin(), part->end());
  return all;
}

TEST(OrderOfSums, TheSizeOfTheDeviceDoesNotChangeABit) {
  const auto expected = sumsOnDeviceOf(4);
  EXPECT_EQ(sumsOnDeviceOf(1), expected);
  EXPECT_EQ(sumsOnDeviceOf(132), expected);
}

} // namespace
} // namespace fsdpc::rt
