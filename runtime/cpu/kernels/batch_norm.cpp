// Channels are runs of `inner` elements where that is long: summed one channel after the other. Where runs are short,
// as in [N, C], neighbouring channels are summed side by side.
#include "runtime/cpu/kernels/batch_norm.h"

#include "runtime/common/parallel.h"

#include <algorithm>

namespace fsdpc::rt {

namespace {

constexpr std::int64_t runBlock = 4096;  // elements summed before f64 takes over
constexpr std::int64_t rowBlock = 128;   // samples, likewise
constexpr std::int64_t columnBlock = 64; // elements of a sample side by side
constexpr std::int64_t shortRun = 16;

struct Sums {
  double first = 0, second = 0;
};

/// Of a channel: over its elements, of first(i) and of second(i).
template <class First, class Second>
Sums sumRuns(const ChannelShape &shape, std::int64_t channel, First first, Second second) {
  Sums total;
  for (std::int64_t sample = 0; sample < shape.outer; ++sample) {
    const std::int64_t start = (sample * shape.channels + channel) * shape.inner;
    for (std::int64_t begin = start; begin < start + shape.inner; begin += runBlock) {
      const std::int64_t end = std::min(start + shape.inner, begin + runBlock);
      float a = 0, b = 0;
#pragma omp simd reduction(+ : a, b)
      for (std::int64_t i = begin; i < end; ++i) {
        a += first(i, channel);
        b += second(i, channel);
      }
      total.first += static_cast<double>(a);
      total.second += static_cast<double>(b);
    }
  }
  return total;
}

/// Of whole channels that begin at element `column` of every sample: totals[j] for the element column + j.
template <class First, class Second>
void sumColumns(const ChannelShape &shape, std::int64_t column, std::int64_t columns, First first, Second second,
                Sums *totals) {
  const std::int64_t width = shape.channels * shape.inner;
  std::int64_t channelOf[columnBlock];
  for (std::int64_t j = 0; j < columns; ++j)
    channelOf[j] = (column + j) / shape.inner;
  for (std::int64_t begin = 0; begin < shape.outer; begin += rowBlock) {
    float a[columnBlock] = {}, b[columnBlock] = {};
    const std::int64_t end = std::min(shape.outer, begin + rowBlock);
    for (std::int64_t sample = begin; sample < end; ++sample)
      for (std::int64_t j = 0; j < columns; ++j) {
        const std::int64_t i = sample * width + column + j;
        a[j] += first(i, channelOf[j]);
        b[j] += second(i, channelOf[j]);
      }
    for (std::int64_t j = 0; j < columns; ++j) {
      totals[j].first += static_cast<double>(a[j]);
      totals[j].second += static_cast<double>(b[j]);
    }
  }
}

/// Calls put(channel, sums) for every channel.
template <class First, class Second, class Put>
void forEachChannel(const Context &c, const ChannelShape &shape, First first, Second second, Put put) {
  const std::int64_t channels = shape.channels, inner = shape.inner;
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, shape.outer * inner));
  if (inner > shortRun)
    return parallelFor(c, channels, grain, [=, &shape](std::int64_t begin, std::int64_t end) {
      for (std::int64_t channel = begin; channel < end; ++channel)
        put(channel, sumRuns(shape, channel, first, second));
    });
  const std::int64_t perBlock = columnBlock / inner, blocks = (channels + perBlock - 1) / perBlock;
  parallelFor(c, blocks, grain, [=, &shape](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t start = block * perBlock, count = std::min(perBlock, channels - start);
      Sums totals[columnBlock];
      sumColumns(shape, start * inner, count * inner, first, second, totals);
      for (std::int64_t channel = 0; channel < count; ++channel) {
        Sums sums;
        for (std::int64_t j = channel * inner; j < (channel + 1) * inner; ++j) {
          sums.first += totals[j].first;
          sums.second += totals[j].second;
        }
        put(start + channel, sums);
      }
    }
  });
}

} // namespace

void batchStatistics(const Context &c, const ChannelShape &shape, const float *x, float *mean, float *variance,
                     Workspace) {
  const double count = static_cast<double>(shape.outer * shape.inner);
  const auto nothing = [](std::int64_t, std::int64_t) { return 0.0f; };
  const auto value = [x](std::int64_t i, std::int64_t) { return x[i]; };
  forEachChannel(c, shape, value, nothing, [=](std::int64_t channel, const Sums &sums) {
    mean[channel] = static_cast<float>(sums.first / count);
  });
  // The mean was rounded: what deviations from it add up to says by how much.
  const auto deviation = [x, mean](std::int64_t i, std::int64_t channel) { return x[i] - mean[channel]; };
  const auto square = [deviation](std::int64_t i, std::int64_t channel) {
    return deviation(i, channel) * deviation(i, channel);
  };
  forEachChannel(c, shape, deviation, square, [=](std::int64_t channel, const Sums &sums) {
    const double shift = sums.first / count;
    const double spread = sums.second / count - shift * shift;
    variance[channel] = spread < 0 ? 0.0f : static_cast<float>(spread);
  });
}

void batchNormGrad(const Context &c, const ChannelShape &shape, const float *dy, const float *x, const float *mean,
                   float *dot, float *sum, Workspace) {
  const auto slope = [dy](std::int64_t i, std::int64_t) { return dy[i]; };
  const auto product = [=](std::int64_t i, std::int64_t channel) { return dy[i] * (x[i] - mean[channel]); };
  forEachChannel(c, shape, slope, product, [=](std::int64_t channel, const Sums &sums) {
    dot[channel] = static_cast<float>(sums.second);
    sum[channel] = static_cast<float>(sums.first);
  });
}

} // namespace fsdpc::rt
