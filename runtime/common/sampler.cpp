#include "runtime/common/sampler.h"

#include "runtime/common/philox.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace fsdpc::rt {
namespace {

/// Uniform in [0, bound); the bias is below bound / 2^64.
std::uint64_t boundedRandom(std::uint64_t index, std::uint64_t epoch, std::uint64_t seed, std::uint64_t bound) {
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  const PhiloxWords words = philox({low(index), high(index), low(epoch), high(epoch)}, {low(seed), high(seed)});
  const std::uint64_t random = std::uint64_t{words.word[0]} << 32 | words.word[1];
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(random) * bound) >> 64);
}

} // namespace

Sampler::Sampler(std::int64_t samples, BatchLayout layout, bool shuffle, bool dropLast, std::uint64_t seed)
    : samples(samples), layout(layout), dropLast(dropLast), seed(seed) {
  if (shuffle)
    order.resize(static_cast<std::size_t>(samples));
}

std::int64_t Sampler::batchesFrom(std::int64_t sample) const {
  const std::int64_t batch = layout.globalBatch();
  const std::int64_t rest = samples - sample;
  return dropLast ? rest / batch : (rest + batch - 1) / batch;
}

void Sampler::startEpoch(std::int64_t epoch) {
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[boundedRandom(i, static_cast<std::uint64_t>(epoch), seed, i)]);
}

void Sampler::rows(std::int64_t first, int microStep, std::span<std::int64_t> rows) const {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t position = first + layout.firstRow(microStep) + static_cast<std::int64_t>(i);
    if (position >= samples)
      rows[i] = padding;
    else
      rows[i] = order.empty() ? position : order[static_cast<std::size_t>(position)];
  }
}

std::int64_t Sampler::samplesInBatch(std::int64_t first) const {
  return std::min(layout.globalBatch(), samples - first);
}

} // namespace fsdpc::rt
