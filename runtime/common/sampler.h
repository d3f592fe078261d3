// The order of samples: one global order per epoch, the same for every world size.
//
// A global batch holds G = worldSize x microBatch x microSteps positions of the order; the first begins at 0 unless a
// resumed run begins elsewhere. Micro-step k of rank r takes rows (k N + r) B .. + B of it. So the set of samples in a
// step does not depend on how they are distributed over ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fsdpc::rt {

struct BatchLayout {
  int worldSize = 1;
  int rank = 0;
  std::int64_t microBatch = 1;
  int microSteps = 1;
  std::int64_t globalBatch() const { return worldSize * microBatch * microSteps; }
  /// First row in the global batch of this rank's micro-step.
  std::int64_t firstRow(int microStep) const { return (std::int64_t{microStep} * worldSize + rank) * microBatch; }
};

class Sampler {
public:
  /// A row that holds no sample: padding of the last batch.
  static constexpr std::int64_t padding = -1;

  /// `shuffle`: a uniform permutation per epoch from (seed, epoch); otherwise the order of the data.
  Sampler(std::int64_t samples, BatchLayout layout, bool shuffle, bool dropLast, std::uint64_t seed);

  std::int64_t globalBatch() const { return layout.globalBatch(); }
  /// Batches of an epoch that remain from position `sample` on.
  std::int64_t batchesFrom(std::int64_t sample) const;
  /// Computes the order of this epoch (from 0). Allocates nothing.
  void startEpoch(std::int64_t epoch);
  /// Writes the samples of this rank's micro-step of the global batch that begins at position `first` into `rows`
  /// (layout.microBatch of them).
  void rows(std::int64_t first, int microStep, std::span<std::int64_t> rows) const;
  /// Samples in that batch over all ranks: less than globalBatch() in a padded last one.
  std::int64_t samplesInBatch(std::int64_t first) const;

private:
  std::int64_t samples;
  BatchLayout layout;
  bool dropLast;
  std::uint64_t seed;
  std::vector<std::int64_t> order; ///< empty unless shuffled
};

} // namespace fsdpc::rt
