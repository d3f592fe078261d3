// Statistics of channels, and the sums of batch norm's derivative, against f64.
#include "tests/runtime/kernels_support.h"

namespace fsdpc::rt {
namespace {

constexpr ChannelShape shapes[] = {{1, 1, 2},  {2, 1, 1},   {5, 7, 1},    {300, 70, 1},   {3, 5, 4},
                                   {9, 3, 49}, {4, 33, 16}, {2, 64, 289}, {40, 2, 10000}, {7, 2, 31}};

/// Reference values per channel, in f64.
struct ChannelReference {
  std::vector<double> mean, variance, dot, sum;

  ChannelReference(const ChannelShape &shape, const std::vector<float> &x, const std::vector<float> &dy,
                   const std::vector<float> &around)
      : mean(shape.channels), variance(shape.channels), dot(shape.channels), sum(shape.channels) {
    const auto channelOf = [&](std::size_t i) { return static_cast<std::int64_t>(i) / shape.inner % shape.channels; };
    const double count = static_cast<double>(shape.outer * shape.inner);
    for (std::size_t i = 0; i < x.size(); ++i)
      mean[channelOf(i)] += x[i] / count;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::int64_t channel = channelOf(i);
      variance[channel] += (x[i] - mean[channel]) * (x[i] - mean[channel]) / count;
      dot[channel] += static_cast<double>(dy[i]) * (static_cast<double>(x[i]) - around[channel]);
      sum[channel] += dy[i];
    }
  }
};

/// Means far from zero: the variance must not be lost to rounding of the squared mean.
std::vector<float> shifted(std::vector<float> values, float by) {
  for (float &value : values)
    value += by;
  return values;
}

TEST(KernelsBatchNorm, StatisticsAndSumsMatchFormulas) {
  for (const ChannelShape &shape : shapes)
    for (const float shift : {0.0f, 100.0f}) {
      const std::int64_t count = shape.outer * shape.channels * shape.inner;
      const auto x = shifted(numbers(count, 1), shift), dy = numbers(count, 2), around = numbers(shape.channels, 3);
      const ChannelReference expected(shape, x, dy, around);
      for (const int threads : {1, 3}) {
        const Context c = contextOf(threads);
        const ScratchBuffer scratch(channelSumsScratchBytes(shape));
        std::vector<float> mean(shape.channels, NAN), variance = mean, dot = mean, sum = mean;
        batchStatistics(c, shape, x.data(), mean.data(), variance.data(), scratch.workspace());
        EXPECT_LT(distance(mean, expected.mean), 1e-6);
        EXPECT_LT(distance(variance, expected.variance), 2e-6);
        batchNormGrad(c, shape, dy.data(), x.data(), around.data(), dot.data(), sum.data(), scratch.workspace());
        EXPECT_LT(distance(dot, expected.dot), 5e-6);
        EXPECT_LT(distance(sum, expected.sum), 5e-6);
        EXPECT_TRUE(scratch.borderIntact());
      }
    }
}

TEST(KernelsBatchNorm, OneNotANumberIsSeen) {
  const ChannelShape shape{4, 3, 50};
  auto x = numbers(600, 1);
  x[75] = NAN; // of channel 1
  const ScratchBuffer scratch(channelSumsScratchBytes(shape));
  std::vector<float> mean(3), variance(3);
  batchStatistics(contextOf(), shape, x.data(), mean.data(), variance.data(), scratch.workspace());
  EXPECT_TRUE(std::isnan(mean[1]) && std::isnan(variance[1]));
  EXPECT_TRUE(std::isfinite(mean[0]) && std::isfinite(variance[2]));
}

} // namespace
} // namespace fsdpc::rt
