// The samples of a step: one global order per epoch (SampleOrder), the same for every world size.
//
// A global batch holds G = worldSize x microBatch x microSteps positions of the order; the first begins at 0 unless a
// resumed run begins elsewhere. Micro-step k of rank r takes rows (k N + r) B .. + B of it. So the set of samples in a
// step does not depend on how they are distributed over ranks.
#pragma once

#include "runtime/common/sample_order.h"

#include <span>

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

  Sampler(SampleOrder order, BatchLayout layout, bool dropLast);

  std::int64_t globalBatch() const { return layout.globalBatch(); }
  /// Batches of an epoch that remain from position `sample` on.
  std::int64_t batchesFrom(std::int64_t sample) const;
  /// Writes the samples of this rank's micro-step of the global batch of `epoch` (from 0) that begins at position
  /// `first` into `rows` (layout.microBatch of them). Allocates nothing.
  void rows(std::int64_t epoch, std::int64_t first, int microStep, std::span<std::int64_t> rows);
  /// Samples in that batch over all ranks: less than globalBatch() in a padded last one.
  std::int64_t samplesInBatch(std::int64_t first) const;
  /// What decides the order besides the seed.
  std::string text() const { return order.text(); }

private:
  SampleOrder order;
  BatchLayout layout;
  bool dropLast;
};

} // namespace fsdpc::rt
