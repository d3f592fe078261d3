#include "runtime/common/guard.h"

#include "runtime/common/exact_sum.h"
#include "runtime/common/parallel.h"

#include <atomic>

namespace fsdpc::rt {

namespace {

/// Neighbouring elements use different tables in turn: equal exponents often follow each other, and an addition to a
/// bin waits for the previous one.
constexpr int tables = 4;
constexpr std::int64_t blockElements = exact::maxAddends * tables;

/// `bins[table][bin]`
template <class T>
void fillBins(const T *x, std::int64_t count, std::uint64_t (&bins)[tables][exact::bins]) {
  const auto add = [&](int table, float value) {
    const std::uint32_t bits = exact::bitsOf(value);
    bins[table][exact::binOf(bits)] += exact::squareOf(bits);
  };
  std::int64_t i = 0;
  for (; i + tables <= count; i += tables)
    for (int table = 0; table < tables; ++table)
      add(table, elementAs<float>(x[i + table]));
  for (; i < count; ++i)
    add(0, elementAs<float>(x[i]));
}

template <class T>
void countNonFinite(const T *x, std::int64_t count, std::uint64_t *sum) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = exact::bitsOf(elementAs<float>(x[i]));
    if (exact::binOf(bits) == exact::nonFiniteBin)
      ++sum[exact::isNaN(bits) ? exact::nanWord : exact::infinityWord];
  }
}

void addBin(const exact::BinParts &bin, std::uint64_t *sum) {
  for (int i = 0; i < 3; ++i)
    sum[bin.firstDigit + i] += bin.parts[i];
}

template <class T>
void addBlock(const T *x, std::int64_t count, std::uint64_t *sum) {
  std::uint64_t bins[tables][exact::bins] = {};
  fillBins(x, count, bins);
  bool isFinite = true;
  for (int table = 0; table < tables; ++table) {
    isFinite = isFinite && bins[table][exact::nonFiniteBin] == 0;
    for (int bin = 0; bin < exact::nonFiniteBin; ++bin)
      if (bins[table][bin] != 0)
        addBin(exact::partsOf(bin, bins[table][bin]), sum);
  }
  if (!isFinite)
    countNonFinite(x, count, sum);
  exact::carry(sum);
}

} // namespace

// Threads add to one sum: integer addition gives the same result in any order.
void squareSum(const Context &c, std::initializer_list<FloatRange> tensors, std::int64_t *sum) {
  auto *const words = reinterpret_cast<std::uint64_t *>(sum);
  for (int i = 0; i < exact::words; ++i)
    words[i] = 0;
  for (const FloatRange &tensor : tensors)
    tensor.visit([&](const auto *data) {
      parallelFor(c, tensor.count, exact::maxAddends, [&](std::int64_t begin, std::int64_t end) {
        std::uint64_t own[exact::words] = {};
        for (std::int64_t at = begin; at < end; at += blockElements)
          addBlock(data + at, std::min(blockElements, end - at), own);
        for (int i = 0; i < exact::words; ++i)
          std::atomic_ref(words[i]).fetch_add(own[i], std::memory_order_relaxed);
      });
    });
  exact::carry(words);
}

void clipNorm(const Context &, const ClipNumbers &numbers, std::initializer_list<const std::int64_t *> sums,
              const float *loss, float *norm, float *scale, bool *applies) {
  std::uint64_t all[exact::words] = {};
  for (const std::int64_t *sum : sums)
    for (int i = 0; i < exact::words; ++i)
      all[i] += static_cast<std::uint64_t>(sum[i]);
  exact::carry(all);
  const exact::Clipped result = exact::clip(all, *loss, numbers);
  *norm = result.norm;
  *scale = result.scale;
  *applies = result.applies;
}

void spikeGuard(const Context &, const float *norm, const bool *applies, const double *limit, const double *mean,
                const double *variance, const std::int64_t *count, bool *stillApplies, double *nextMean,
                double *nextVariance, std::int64_t *nextCount) {
  exact::NormHistory history = {*mean, *variance, *count};
  *stillApplies = *applies && exact::isNoSpike(*norm, *limit, history);
  *nextMean = history.mean;
  *nextVariance = history.variance;
  *nextCount = history.count;
}

void adjustLossScale(const Context &, const LossScaleRule &rule, const double *scale, const std::int64_t *goodSteps,
                     const std::int64_t *hysteresis, const bool *applies, double *nextScale,
                     std::int64_t *nextGoodSteps, std::int64_t *nextHysteresis, bool *isExhausted) {
  const exact::LossScale next = exact::adjusted({*scale, *goodSteps, *hysteresis}, rule, *applies);
  *nextScale = next.scale;
  *nextGoodSteps = next.goodSteps;
  *nextHysteresis = next.hysteresis;
  *isExhausted = next.isExhausted;
}

} // namespace fsdpc::rt
