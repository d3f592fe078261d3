#include "runtime/common/sample_order.h"

#include "runtime/common/philox.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace fsdpc::rt {
namespace {

/// Random numbers for shards, which are apart from those for samples.
constexpr std::uint64_t forShards = std::uint64_t{1} << 63;
/// The seeds of two sources differ by a multiple of this, the golden ratio of 2^64.
constexpr std::uint64_t seedStride = 0x9E3779B97F4A7C15;
/// Weights are rounded to this many samples in a round.
constexpr double largestRound = 10'000;

/// Uniform in [0, bound); the bias is below bound / 2^64.
std::uint64_t boundedRandom(std::uint64_t index, std::uint64_t epoch, std::uint64_t seed, std::uint64_t bound) {
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  const PhiloxWords words = philox({low(index), high(index), low(epoch), high(epoch)}, {low(seed), high(seed)});
  const std::uint64_t random = std::uint64_t{words.word[0]} << 32 | words.word[1];
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(random) * bound) >> 64);
}

/// A permutation of [0, size), from random numbers `base` + 2 to `base` + size.
void permute(std::vector<std::uint32_t> &order, std::int64_t size, std::uint64_t base, std::int64_t epoch,
             std::uint64_t seed) {
  order.resize(static_cast<std::size_t>(size)); // within the reserved space
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[boundedRandom(base + i, static_cast<std::uint64_t>(epoch), seed, i)]);
}

/// How many samples of each source a round has: at least one.
std::vector<std::int64_t> sharesOf(const std::vector<SampleSource> &sources) {
  double sum = 0;
  for (const SampleSource &source : sources)
    sum += source.weight;
  std::vector<std::int64_t> shares;
  std::int64_t divisor = 0;
  for (const SampleSource &source : sources) {
    shares.push_back(std::max<std::int64_t>(1, std::llround(source.weight / sum * largestRound)));
    divisor = std::gcd(divisor, shares.back());
  }
  for (std::int64_t &share : shares)
    share /= divisor;
  return shares;
}

} // namespace

SourceOrder::SourceOrder(SampleSource given, const ShuffleOptions &options)
    : source(std::move(given)), options(options) {
  if (!options.shuffle)
    return;
  const std::int64_t all = source.samples();
  window = std::min({all,
                     options.window > 0      ? options.window
                     : all <= shuffledAtOnce ? all
                                             : defaultWindow,
                     std::int64_t{std::numeric_limits<std::uint32_t>::max()}});
  for (Window &kept : windows)
    kept.order.reserve(static_cast<std::size_t>(window));
  if (shufflesShards())
    for (Shards &kept : shards) {
      kept.order.reserve(source.shardEnds.size());
      kept.ends.resize(source.shardEnds.size());
    }
}

const SourceOrder::Window &SourceOrder::windowOf(std::int64_t epoch, std::int64_t index) {
  const auto isAsked = [&](const Window &kept) { return kept.epoch == epoch && kept.index == index; };
  if (!isAsked(windows[lastWindow]))
    lastWindow = 1 - lastWindow;
  Window &asked = windows[lastWindow];
  if (isAsked(asked))
    return asked;
  const std::int64_t begin = index * window;
  permute(asked.order, std::min(window, source.samples() - begin), static_cast<std::uint64_t>(begin), epoch,
          options.seed);
  asked.epoch = epoch;
  asked.index = index;
  return asked;
}

const SourceOrder::Shards &SourceOrder::shardsOf(std::int64_t epoch) {
  if (shards[lastShards].epoch != epoch)
    lastShards = 1 - lastShards;
  Shards &asked = shards[lastShards];
  if (asked.epoch == epoch)
    return asked;
  permute(asked.order, static_cast<std::int64_t>(source.shardEnds.size()), forShards, epoch, options.seed);
  std::int64_t end = 0;
  for (std::size_t i = 0; i < asked.order.size(); ++i) {
    const std::size_t shard = asked.order[i];
    end += source.shardEnds[shard] - (shard > 0 ? source.shardEnds[shard - 1] : 0);
    asked.ends[i] = end;
  }
  asked.epoch = epoch;
  return asked;
}

std::int64_t SourceOrder::at(std::int64_t number) {
  const std::int64_t epoch = number / source.samples(), position = number % source.samples();
  if (!options.shuffle)
    return source.firstSample + position;
  const std::int64_t index = position / window, begin = index * window;
  const std::int64_t shuffled = begin + windowOf(epoch, index).order[static_cast<std::size_t>(position - begin)];
  if (!shufflesShards())
    return source.firstSample + shuffled;
  const Shards &permuted = shardsOf(epoch);
  const auto end = std::upper_bound(permuted.ends.begin(), permuted.ends.end(), shuffled);
  const std::int64_t shard = permuted.order[static_cast<std::size_t>(end - permuted.ends.begin())];
  const std::int64_t fromItsEnd = *end - shuffled;
  return source.firstSample + source.shardEnds[static_cast<std::size_t>(shard)] - fromItsEnd;
}

std::string SourceOrder::text() const {
  std::string text = std::to_string(source.samples());
  if (options.shuffle)
    text += " in windows of " + std::to_string(window);
  return shufflesShards() ? text + " from " + std::to_string(source.shardEnds.size()) + " shards" : text;
}

SampleOrder::SampleOrder(std::int64_t samples) : SampleOrder({{0, {samples}, 1}}, {}) {}

SampleOrder::SampleOrder(const std::vector<SampleSource> &sources, const ShuffleOptions &options)
    : shares(sharesOf(sources)) {
  for (std::size_t i = 0; i < sources.size(); ++i) {
    ShuffleOptions own = options;
    own.seed += i * seedStride;
    orders.emplace_back(sources[i], own);
    epochSamples += sources[i].samples();
  }
  const std::int64_t round = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  std::vector<std::int64_t> taken(sources.size());
  for (std::int64_t i = 0; i < round; ++i) {
    // The source that is furthest behind its share.
    const auto owed = [&](std::size_t source) { return shares[source] * (i + 1) - taken[source] * round; };
    std::size_t next = 0;
    for (std::size_t source = 1; source < sources.size(); ++source)
      if (owed(source) > owed(next))
        next = source;
    turns.push_back({static_cast<std::uint32_t>(next), static_cast<std::uint32_t>(taken[next]++)});
  }
}

std::string SampleOrder::text() const {
  if (orders.size() == 1)
    return orders[0].text();
  std::string text;
  for (std::size_t i = 0; i < orders.size(); ++i)
    text += (i > 0 ? "; " : "") + std::to_string(shares[i]) + " of " + std::to_string(turns.size()) + ": " +
            orders[i].text();
  return text;
}

std::int64_t SampleOrder::at(std::int64_t epoch, std::int64_t position) {
  const std::int64_t all = epoch * epochSamples + position, round = static_cast<std::int64_t>(turns.size());
  const Turn &turn = turns[static_cast<std::size_t>(all % round)];
  return orders[turn.source].at(all / round * shares[turn.source] + turn.number);
}

} // namespace fsdpc::rt
