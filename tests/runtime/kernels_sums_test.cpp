// Long sums of every kernel are as exact as their declarations say: 10^6 terms on cpu, 10^5 on the emulated device (a
// row of a table: 10^4).
//
// An error is that of the f32 result, relative to the sum of absolute terms, in units of 2^-24; the exact sum is taken
// in 80-bit floats. Terms of one value are the hardest: every addition to a long f32 sum is then rounded the same way.
#include "tests/runtime/kernels_support.h"

#include <algorithm>
#include <map>
#include <string>

namespace fsdpc::rt {
namespace {

#if defined(FSDPC_CUDA_KERNELS)
constexpr std::int64_t terms = 100'000;
constexpr int threadCounts[] = {1};
/// Columns of a table; the kernel's work grows with the square of terms / columns.
constexpr std::int64_t tableColumns[] = {10};
#else
constexpr std::int64_t terms = 1'000'000;
constexpr int threadCounts[] = {1, 3};
constexpr std::int64_t tableColumns[] = {1, 10};
#endif

struct Terms {
  std::string name;
  std::vector<float> values;
};

/// Same as terms_of in tests/bench/exact_sums.py.
std::vector<Terms> allTerms() {
  std::vector<Terms> all = {{"one_value", std::vector<float>(terms, 0.1f)},
                            {"one_sign", numbers(terms, 1)},
                            {"mixed", numbers(terms, 2)},
                            {"cancelling", numbers(terms, 3)}};
  for (float &value : all[1].values)
    value = std::abs(value);
  for (std::int64_t i = 0; i < terms; ++i)
    all[3].values[i] += i % 2 == 0 ? 100.0f : -100.0f;
  return all;
}

struct Exact {
  long double sum = 0, absolute = 0;
  void add(long double term) {
    sum += term;
    absolute += std::abs(term);
  }
};

template <class Term>
Exact exactOf(std::int64_t count, Term term) {
  Exact exact;
  for (std::int64_t i = 0; i < count; ++i)
    exact.add(term(i));
  return exact;
}

/// Checks actual = sum / divisor against `bound`, and records the largest error of a name for the table.
void expectSum(const std::string &name, float actual, const Exact &exact, double bound, double divisor = 1) {
  const double scale = static_cast<double>(exact.absolute) / divisor;
  const double error = std::abs(static_cast<double>(actual - exact.sum / divisor)) / scale * 0x1p24;
  static std::map<std::string, double> largest;
  largest[name] = std::max(largest[name], error);
  testing::Test::RecordProperty(name, std::to_string(largest[name]));
  EXPECT_LE(error, bound) << name;
  EXPECT_EQ(error, error) << name;
}

ReduceShape reduceShape(std::initializer_list<std::int64_t> dims, std::initializer_list<bool> reduced) {
  ReduceShape shape;
  for (const std::int64_t dim : dims)
    shape.dims[shape.rank++] = dim;
  std::copy(reduced.begin(), reduced.end(), shape.reduced);
  return shape;
}

TEST(KernelsSums, OfReductionsAreExact) {
  for (const Terms &t : allTerms()) {
    const Exact all = exactOf(terms, [&](std::int64_t i) { return t.values[i]; });
    float sum = NAN;
    reduceSum(contextOf(), reduceShape({terms}, {true}), t.values.data(), &sum);
    expectSum("reduce_rows." + t.name, sum, all, 6.5);

    for (const int threads : threadCounts) {
      const std::int64_t rows = terms / 5, batch = 10, inner = terms / 2 / batch;
      auto columns = unwritten(5), channels = unwritten(2);
      reduceSum(contextOf(threads), reduceShape({rows, 5}, {true, false}), t.values.data(), columns.data());
      for (std::int64_t j = 0; j < 5; ++j)
        expectSum("reduce_columns." + t.name, columns[j],
                  exactOf(rows, [&](std::int64_t i) { return t.values[i * 5 + j]; }), 6.5);
      reduceSum(contextOf(threads), reduceShape({batch, 2, inner}, {true, false, true}), t.values.data(),
                channels.data());
      for (std::int64_t j = 0; j < 2; ++j)
        expectSum(
            "reduce_channels." + t.name, channels[j],
            exactOf(batch * inner, [&](std::int64_t i) { return t.values[(i / inner * 2 + j) * inner + i % inner]; }),
            6.5);
    }
  }
}

TEST(KernelsSums, AlongAnAxisAreExact) {
  for (const Terms &t : allTerms()) {
    auto sums = unwritten(terms);
    cumulativeSum(contextOf(), {1, terms, 1}, false, false, t.values.data(), sums.data());
    for (const std::int64_t count : {terms / 2, terms})
      expectSum("cumulative_sum." + t.name, sums[count - 1],
                exactOf(count, [&](std::int64_t i) { return t.values[i]; }), 1);
  }
}

TEST(KernelsSums, OfNormsOverRowsAreExact) {
  for (const Terms &t : allTerms()) {
    const std::vector<float> ones(terms, 1), zeros(terms, 0);
    const Exact values = exactOf(terms, [&](std::int64_t i) { return t.values[i]; });
    const Exact squares = exactOf(terms, [&](std::int64_t i) { return (long double)t.values[i] * t.values[i]; });
    const NormShape shape{1, terms, 1e-5};
    float mean = NAN, rstd = NAN;
    auto y = unwritten(terms), dx = unwritten(terms), slopes = unwritten(terms);
    layerNorm(contextOf(), shape, t.values.data(), ones.data(), zeros.data(), y.data(), &mean, &rstd);
    expectSum("layer_norm_mean." + t.name, mean, values, 5, terms);
    rmsNorm(contextOf(), shape, t.values.data(), ones.data(), y.data(), &rstd);
    const long double expected = 1 / std::sqrt(squares.sum / terms + 1e-5L);
    Exact exactRstd;
    exactRstd.add(expected);
    expectSum("rms_norm_rstd." + t.name, rstd, exactRstd, 4);

    // With x = 1 and gamma = 1, the derivative subtracts dy's mean once (rms), so that it affects every element.
    const ScratchBuffer scratch(rmsNormGradScratchBytes(shape));
    rstd = 1;
    rmsNormGrad(contextOf(), shape, t.values.data(), ones.data(), ones.data(), &rstd, dx.data(), slopes.data(),
                scratch.workspace());
    EXPECT_TRUE(scratch.borderIntact());
    const long double size = std::abs((long double)t.values[7]) + values.absolute / terms;
    EXPECT_LE(std::abs(dx[7] - (t.values[7] - values.sum / terms)), 36 * 0x1p-24L * size) << t.name; // norm.h
  }
}

TEST(KernelsSums, OfNormParametersAreExact) {
  constexpr std::int64_t columns = 5, rows = terms / columns;
  const auto x = numbers(terms, 9);
  const std::vector<float> ones(columns, 1), mean(rows, 0.25f), rstd(rows, 2);
  const NormShape shape{rows, columns, 1e-5};
  for (const Terms &t : allTerms())
    for (const int threads : threadCounts) {
      const ScratchBuffer scratch(layerNormGradScratchBytes(shape));
      auto dx = unwritten(terms), dgamma = unwritten(columns), dbeta = unwritten(columns), ofRms = unwritten(columns);
      layerNormGrad(contextOf(threads), shape, t.values.data(), x.data(), ones.data(), mean.data(), rstd.data(),
                    dx.data(), dgamma.data(), dbeta.data(), scratch.workspace());
      rmsNormGrad(contextOf(threads), shape, t.values.data(), x.data(), ones.data(), rstd.data(), dx.data(),
                  ofRms.data(), scratch.workspace());
      EXPECT_TRUE(scratch.borderIntact());
      for (std::int64_t j = 0; j < columns; ++j) {
        const auto dy = [&](std::int64_t i) { return (long double)t.values[i * columns + j]; };
        expectSum("norm_dbeta." + t.name, dbeta[j], exactOf(rows, dy), 17);
        expectSum("norm_dgamma." + t.name, dgamma[j],
                  exactOf(rows, [&](std::int64_t i) { return dy(i) * (x[i * columns + j] - 0.25L) * 2; }), 20);
        expectSum("rms_norm_dgamma." + t.name, ofRms[j],
                  exactOf(rows, [&](std::int64_t i) { return dy(i) * x[i * columns + j] * 2; }), 20);
      }
    }
}

TEST(KernelsSums, OfChannelsAreExact) {
  const auto x = numbers(terms, 9);
  for (const Terms &t : allTerms())
    for (const ChannelShape shape : {ChannelShape{terms / 2, 2, 1}, ChannelShape{1, 2, terms / 2}})
      for (const int threads : threadCounts) {
        const std::int64_t count = terms / 2;
        const ScratchBuffer scratch(channelSumsScratchBytes(shape));
        const std::string layout = shape.inner == 1 ? "columns." : "runs.";
        const auto at = [&](std::int64_t i, std::int64_t c) { return shape.inner == 1 ? i * 2 + c : c * count + i; };
        auto mean = unwritten(2), variance = unwritten(2), dot = unwritten(2), sum = unwritten(2);
        batchStatistics(contextOf(threads), shape, t.values.data(), mean.data(), variance.data(), scratch.workspace());
        const std::vector<float> center = {0.25f, -0.5f};
        batchNormGrad(contextOf(threads), shape, t.values.data(), x.data(), center.data(), dot.data(), sum.data(),
                      scratch.workspace());
        EXPECT_TRUE(scratch.borderIntact());
        for (std::int64_t c = 0; c < 2; ++c) {
          const auto value = [&](std::int64_t i) { return (long double)t.values[at(i, c)]; };
          const Exact values = exactOf(count, value);
          expectSum("batch_mean." + layout + t.name, mean[c], values, 12, count);
          const long double average = values.sum / count;
          const Exact spread =
              exactOf(count, [&](std::int64_t i) { return (value(i) - average) * (value(i) - average); });
          if (spread.sum / count > 1e-6L)
            expectSum("batch_variance." + layout + t.name, variance[c], spread, 24, count);
          expectSum("batch_dbeta." + layout + t.name, sum[c], values, 9);
          expectSum("batch_dgamma." + layout + t.name, dot[c],
                    exactOf(count, [&](std::int64_t i) { return value(i) * (x[at(i, c)] - (long double)center[c]); }),
                    12);
        }
      }
}

TEST(KernelsSums, OfExponentialsAreExact) {
  // On the rising row, an online sum that tracks the maximum rescales its partial sum at every element.
  std::vector<float> same(terms, 0.1f), rising(terms), wide = numbers(terms, 4);
  for (std::int64_t i = 0; i < terms; ++i)
    rising[i] = static_cast<float>(i) * 1e-5f;
  const std::pair<std::string, std::vector<float>> rows[] = {
      {"one_value", same}, {"rising", rising}, {"one_sign", wide}};
  for (const auto &[name, x] : rows)
    for (const std::int64_t inner : {1, 2}) {
      const std::int64_t count = terms / inner;
      auto y = unwritten(terms), logs = unwritten(terms);
      softmax(contextOf(), {1, count, inner}, x.data(), y.data());
      logSoftmax(contextOf(), {1, count, inner}, x.data(), logs.data());
      const Exact sum = exactOf(count, [&](std::int64_t i) { return std::exp((long double)x[i * inner]); });
      for (const std::int64_t i : {std::int64_t{0}, count - 1}) {
        // In addition to the sum, an exponential of up to 10 has the rounding error of its argument.
        Exact probability, logarithm;
        probability.add(std::exp((long double)x[i * inner]) / sum.sum);
        logarithm.add(x[i * inner] - std::log(sum.sum));
        expectSum("softmax." + name, y[i * inner], probability, name == "rising" ? 20 : 10);
        expectSum("log_softmax." + name, logs[i * inner], logarithm, 4);
      }
    }
}

TEST(KernelsSums, OfSoftmaxGradientsAreExact) {
  const float probability = 1.0f / terms;
  const std::vector<float> y(terms, probability), zeros(terms, 0);
  for (const Terms &t : allTerms()) {
    const Exact values = exactOf(terms, [&](std::int64_t i) { return t.values[i]; });
    auto dx = unwritten(terms);
    softmaxGrad(contextOf(), {1, terms, 1}, y.data(), t.values.data(), dx.data());
    const long double size = std::abs((long double)t.values[7]) + values.absolute / terms;
    EXPECT_LE(std::abs(dx[7] / (long double)probability - (t.values[7] - values.sum * probability)),
              8 * 0x1p-24L * size)
        << t.name;
    // exp(0) = 1: the full sum affects every element.
    logSoftmaxGrad(contextOf(), {1, terms, 1}, zeros.data(), t.values.data(), dx.data());
    EXPECT_LE(std::abs(dx[7] - (t.values[7] - values.sum)), 8 * 0x1p-24L * values.absolute) << t.name;
  }
}

TEST(KernelsSums, OfLossesAreExact) {
  const std::vector<std::int64_t> labels = {7};
  for (const Terms &t : allTerms()) {
    if (t.name == "cancelling")
      continue; // its largest exponentials hide the rest
    float term = NAN, lse = NAN;
    crossEntropy(contextOf(), {1, terms}, t.values.data(), labels.data(), &term, &lse);
    const Exact sum = exactOf(terms, [&](std::int64_t i) { return std::exp((long double)t.values[i]); });
    Exact logarithm;
    logarithm.add(std::log(sum.sum));
    expectSum("cross_entropy_lse." + t.name, lse, logarithm, 3);
    // All smoothing: the term is -mean.
    nll(contextOf(), {1, terms, -100, 1.0}, t.values.data(), labels.data(), &term);
    Exact mean = exactOf(terms, [&](std::int64_t i) { return -t.values[i]; });
    expectSum("nll_smoothed." + t.name, term, mean, 6, terms);
  }
}

TEST(KernelsSums, OfOneRowOfATableAreExact) {
  for (const Terms &t : allTerms())
    for (const std::int64_t inner : tableColumns)
      for (const int threads : threadCounts) {
        const std::int64_t count = terms / inner;
        // Other rows are in between.
        std::vector<std::int64_t> indices(static_cast<std::size_t>(count), 2);
        for (std::int64_t i = 0; i < count; i += 7)
          indices[i] = i / 7 % 5 - 5;
        const GatherShape shape{1, 5, inner, count};
        const ScratchBuffer scratch(scatterAddScratchBytes(shape));
        auto table = unwritten(5 * inner);
        scatterAdd(contextOf(threads), shape, indices.data(), t.values.data(), table.data(), scratch.workspace());
        EXPECT_TRUE(scratch.borderIntact());
        std::vector<Exact> rows(static_cast<std::size_t>(5 * inner));
        for (std::int64_t i = 0; i < terms; ++i)
          rows[(indices[i / inner] + 5) % 5 * inner + i % inner].add(t.values[i]);
        for (std::int64_t j = 0; j < 5 * inner; ++j)
          expectSum("scatter_add." + t.name, table[j], rows[j], 8.5);
      }
}

TEST(KernelsSums, OfWindowsAreExact) {
  for (const Terms &t : allTerms()) {
    PoolShape shape;
    shape.input[1] = shape.kernel[1] = 100;
    shape.input[2] = shape.kernel[2] = terms / 100;
    float mean = NAN;
    averagePool(contextOf(), shape, t.values.data(), &mean);
    expectSum("average_pool." + t.name, mean, exactOf(terms, [&](std::int64_t i) { return t.values[i]; }), 1, terms);
  }
}

} // namespace
} // namespace fsdpc::rt
