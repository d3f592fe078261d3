#include "runtime/common/training_order.h"

#include <algorithm>

namespace fsdpc::rt {

TrainingOrder::TrainingOrder(const Sampler &sampler, std::int64_t stepsDone, SamplePosition start, bool isFixed)
    : globalBatch(sampler.globalBatch()), batchesPerEpoch(sampler.batchesFrom(0)), stepsDone(stepsDone), start(start),
      firstBatches(sampler.batchesFrom(start.sample)), isFixed(isFixed) {}

TrainingOrder::Batch TrainingOrder::at(std::int64_t step) const {
  if (isFixed)
    return {0, 0, true, false};
  const std::int64_t index = step - stepsDone - 1;
  if (index < 0) {
    const bool ended = start.sample == 0;
    return {ended ? start.epoch - 1 : start.epoch, start.sample - globalBatch, false, ended};
  }
  if (index < firstBatches)
    return {start.epoch, start.sample + index * globalBatch, index == 0, index == firstBatches - 1};
  const std::int64_t later = index - firstBatches;
  const std::int64_t batch = later % batchesPerEpoch;
  return {start.epoch + 1 + later / batchesPerEpoch, batch * globalBatch, batch == 0, batch == batchesPerEpoch - 1};
}

SamplePosition TrainingOrder::after(std::int64_t step) const {
  if (isFixed || step == stepsDone)
    return start;
  const Batch batch = at(step);
  return batch.endsEpoch ? SamplePosition{batch.epoch + 1, 0}
                         : SamplePosition{batch.epoch, batch.firstSample + globalBatch};
}

std::int64_t TrainingOrder::samplesBefore(SamplePosition position) const {
  return position.epoch * samplesPerEpoch() + std::min(position.sample, samplesPerEpoch());
}

std::int64_t TrainingOrder::stepsUntil(std::int64_t epochs) const {
  if (isFixed)
    return epochs;
  if (epochs <= start.epoch)
    return stepsDone;
  return stepsDone + firstBatches + (epochs - start.epoch - 1) * batchesPerEpoch;
}

} // namespace fsdpc::rt
