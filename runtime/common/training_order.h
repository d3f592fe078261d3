// Which samples each training step takes.
//
// A run starts at the first sample of epoch 0, or where a checkpoint left off. Its position is a sample of an epoch,
// not a number of batches, so a resumed run may have another global batch: no sample is skipped or repeated.
#pragma once

#include "runtime/common/sampler.h"

namespace fsdpc::rt {

/// The next sample of a run.
struct SamplePosition {
  std::int64_t epoch = 0;
  std::int64_t sample = 0; ///< position in the order of the epoch
};

class TrainingOrder {
public:
  struct Batch {
    std::int64_t epoch;
    std::int64_t firstSample; ///< position in the order of the epoch
    bool beginsEpoch;         ///< this run has not taken a sample of the epoch before
    bool endsEpoch;
  };

  /// `stepsDone` steps were done before `start`. `isFixed`: one global batch is used in every step, and there are no
  /// epochs.
  TrainingOrder(const Sampler &sampler, std::int64_t stepsDone, SamplePosition start, bool isFixed);

  /// `step`: from stepsDone + 1; or stepsDone, if it is not 0: then epoch and endsEpoch are known, and no sample.
  Batch at(std::int64_t step) const;
  /// The next sample after `step`.
  SamplePosition after(std::int64_t step) const;
  /// The number of steps, those done included, at the end of epoch `epochs` - 1. With a fixed batch, `epochs`.
  std::int64_t stepsUntil(std::int64_t epochs) const;
  std::int64_t stepsPerEpoch() const { return batchesPerEpoch; }
  std::int64_t samplesPerEpoch() const { return batchesPerEpoch * globalBatch; }
  /// Counted in epochs of samplesPerEpoch(), so those before a step are the steps before it times the global batch, as
  /// long as that does not change.
  std::int64_t samplesBefore(SamplePosition position) const;

private:
  std::int64_t globalBatch, batchesPerEpoch;
  std::int64_t stepsDone;
  SamplePosition start;
  std::int64_t firstBatches; ///< of the epoch of `start`, from there on
  bool isFixed;
};

} // namespace fsdpc::rt
