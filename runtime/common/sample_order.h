// The order in which a run takes the samples of a data set: the same on every rank and for every number of ranks.
//
// A data set has sources, each a range of samples in one or more shards, which are files. Several sources are mixed by
// weight, in rounds of at most about ten thousand samples: every round has the same number of each source, spread
// evenly. A source that ends early begins again, in a new order, so the epochs of the sources are not those of the run.
// An epoch of the run has as many samples as all sources together.
//
// Shuffled, the order of a source is a new one in each of its epochs. Up to `shuffledAtOnce` samples it is a uniform
// permutation of all. Of more, the shards are permuted first, and then the samples within consecutive windows. So a
// rank reads from few files at a time and keeps one window in memory, not one number per sample.
//
// Every order can be computed from any position, so a run goes on where a checkpoint was.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc::rt {

struct SampleSource {
  std::int64_t firstSample = 0;        ///< in the data set
  std::vector<std::int64_t> shardEnds; ///< ascending: the samples of the source up to the end of each shard
  double weight = 1;                   ///< how often it is taken, relative to the other sources

  std::int64_t samples() const { return shardEnds.empty() ? 0 : shardEnds.back(); }
};

struct ShuffleOptions {
  bool shuffle = false;
  std::int64_t window = 0; ///< samples of a window; 0: all up to `shuffledAtOnce`, else `defaultWindow`
  std::uint64_t seed = 0;
};

constexpr std::int64_t shuffledAtOnce = std::int64_t{1} << 22, defaultWindow = std::int64_t{1} << 20;

/// The order of one source. After construction nothing is allocated.
class SourceOrder {
public:
  SourceOrder(SampleSource source, const ShuffleOptions &options);

  /// The sample of the data set that is taken as `number`-th of this source, counted from 0 over all epochs.
  std::int64_t at(std::int64_t number);
  /// What decides the order besides the seed: "700", shuffled "700 in windows of 700", "... of 1024 from 12 shards".
  std::string text() const;

private:
  struct Window {
    std::int64_t epoch = -1, index = -1;
    std::vector<std::uint32_t> order;
  };
  struct Shards {
    std::int64_t epoch = -1;
    std::vector<std::uint32_t> order;
    std::vector<std::int64_t> ends; ///< in that order
  };

  const Window &windowOf(std::int64_t epoch, std::int64_t index);
  const Shards &shardsOf(std::int64_t epoch);
  bool shufflesShards() const { return options.shuffle && window < source.samples() && source.shardEnds.size() > 1; }

  SampleSource source;
  ShuffleOptions options;
  std::int64_t window = 0;
  // Two of each: a batch may lie in two windows, and samples are read ahead.
  std::array<Window, 2> windows;
  std::array<Shards, 2> shards;
  std::size_t lastWindow = 0, lastShards = 0;
};

class SampleOrder {
public:
  /// At least one source; none is empty.
  SampleOrder(const std::vector<SampleSource> &sources, const ShuffleOptions &options);
  /// One source of one shard, in its own order.
  explicit SampleOrder(std::int64_t samples);

  /// Of an epoch.
  std::int64_t samples() const { return epochSamples; }
  /// Allocates nothing.
  std::int64_t at(std::int64_t epoch, std::int64_t position);
  /// What decides the order besides the seed: that of the source, or "7 of 10: 700; 3 of 10: 300".
  std::string text() const;

private:
  struct Turn {
    std::uint32_t source = 0, number = 0; ///< the source, and how often the round has taken it before
  };

  std::vector<SourceOrder> orders;
  std::vector<Turn> turns;          ///< of a round
  std::vector<std::int64_t> shares; ///< per source, in a round
  std::int64_t epochSamples = 0;
};

} // namespace fsdpc::rt
