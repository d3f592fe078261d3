// A channel is a contiguous range of `inner` elements per sample. Long ranges are summed one channel after the other.
// For short ranges, as in [N, C], neighbouring channels are summed in parallel.
#include "runtime/cpu/kernels/batch_norm.h"

#include "runtime/common/parallel.h"
#include "runtime/cpu/kernels/long_sum.h"

#include <algorithm>

namespace fsdpc::rt {

namespace {

constexpr std::int64_t columnBlock = 64; // adjacent elements of a sample that are summed in parallel
constexpr std::int64_t shortRun = 16;

/// Stands for the absence of a second sum.
struct Nothing {};

struct Sums {
  double first = 0, second = 0;
};

/// Sums first(i) and second(i) over the elements of a channel.
template <class First, class Second>
Sums sumRuns(const ChannelShape &shape, std::int64_t channel, First first, Second second) {
  LongSum a, b;
  for (std::int64_t sample = 0; sample < shape.outer; ++sample) {
    const std::int64_t start = (sample * shape.channels + channel) * shape.inner;
    const auto firstOf = [=](std::int64_t i) { return first(i, channel); };
    if constexpr (std::is_same_v<Second, Nothing>)
      a.add(start, start + shape.inner, firstOf);
    else
      LongSum::addBoth(a, b, start, start + shape.inner, firstOf, [=](std::int64_t i) { return second(i, channel); });
  }
  return {a.total(), b.total()};
}

/// Sums complete channels that begin at element `column` of every sample: a[j] and b[j] for element column + j.
template <class First, class Second>
void sumColumns(const ChannelShape &shape, std::int64_t column, std::int64_t columns, First first, Second second,
                double *a, double *b) {
  const std::int64_t width = shape.channels * shape.inner;
  std::int64_t channelOf[columnBlock];
  for (std::int64_t j = 0; j < columns; ++j)
    channelOf[j] = (column + j) / shape.inner;
  for (std::int64_t begin = 0; begin < shape.outer; begin += treeRows) {
    const std::int64_t rows = std::min(treeRows, shape.outer - begin), start = begin * width + column;
    const auto addTo = [&](double *totals, auto term) {
      const auto termOf = [&](std::int64_t row, std::int64_t j) { return term(start + row * width + j, channelOf[j]); };
      if (rows == treeRows)
#pragma omp simd
        for (std::int64_t j = 0; j < columns; ++j)
          totals[j] += static_cast<double>(treeOf([&](std::int64_t row) { return termOf(row, j); }));
      else
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t j = 0; j < columns; ++j)
            totals[j] += static_cast<double>(termOf(row, j));
    };
    addTo(a, first);
    if constexpr (!std::is_same_v<Second, Nothing>)
      addTo(b, second);
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
      double a[columnBlock] = {}, b[columnBlock] = {};
      sumColumns(shape, start * inner, count * inner, first, second, a, b);
      for (std::int64_t channel = 0; channel < count; ++channel) {
        Sums sums;
        for (std::int64_t j = channel * inner; j < (channel + 1) * inner; ++j) {
          sums.first += a[j];
          sums.second += b[j];
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
  const auto value = [x](std::int64_t i, std::int64_t) { return x[i]; };
  forEachChannel(c, shape, value, Nothing{}, [=](std::int64_t channel, const Sums &sums) {
    mean[channel] = static_cast<float>(sums.first / count);
  });
  // The mean was rounded. The sum of the deviations from it gives the error.
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
