#include "runtime/common/run_learning_rate.h"

#include <algorithm>
#include <cmath>

namespace fsdpc::rt {
namespace {

ScheduleKind scheduleKind(const std::string &name) {
  if (name == "cosine")
    return ScheduleKind::cosine;
  if (name == "linear")
    return ScheduleKind::linear;
  if (name == "wsd")
    return ScheduleKind::wsd;
  return name == "step" ? ScheduleKind::step : ScheduleKind::constant;
}

/// Rounded as transformers' get_warmup_steps does, from the same product.
std::int64_t warmUpSteps(const Options &options, std::int64_t totalSteps, const WarmUp &resumed) {
  if (options.warmupRatio == 0)
    return options.warmupSteps;
  if (options.warmupRatio == resumed.ratio && resumed.steps > 0 && resumed.steps <= totalSteps)
    return resumed.steps;
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(totalSteps) * options.warmupRatio));
}

/// Where the warm-up ends. If it has ended in an earlier run with another number of steps, the earlier global batches
/// are unknown, and are taken to be equal.
SamplePosition endOfWarmUp(std::int64_t steps, const TrainingOrder &order, const TrainingState &resumed) {
  if (steps >= resumed.step)
    return order.after(steps);
  if (steps == resumed.warmUp.steps)
    return resumed.warmUp.end;
  const double samplesPerStep =
      static_cast<double>(order.samplesBefore(resumed.next)) / static_cast<double>(resumed.step);
  const auto samples = static_cast<std::int64_t>(samplesPerStep * static_cast<double>(steps));
  return {samples / order.samplesPerEpoch(), samples % order.samplesPerEpoch()};
}

bool isStatedInEpochs(const Options &options, const TrainingOrder &order, std::int64_t totalSteps) {
  if (scheduleKind(options.lrScheduler) == ScheduleKind::step)
    return options.stepSize.inEpochs;
  return options.epochs && order.stepsUntil(*options.epochs) == totalSteps;
}

} // namespace

RunLearningRate::RunLearningRate(const Options &options, const TrainingOrder &order, std::int64_t totalSteps,
                                 const TrainingState &resumed)
    : order(order), isInEpochs(order.stepsPerEpoch() > 0 && isStatedInEpochs(options, order, totalSteps)) {
  schedule.kind = scheduleKind(options.lrScheduler);
  schedule.baseRate = options.scalar("lr");
  schedule.minRate = options.minLr;
  schedule.gamma = options.gamma;
  warmUp.ratio = options.warmupRatio;
  warmUp.steps = warmUpSteps(options, totalSteps, resumed.warmUp);
  schedule.warmupSteps = schedule.begin = warmUp.steps;
  schedule.end = totalSteps;
  schedule.stepSize = std::max<std::int64_t>(1, options.stepSize.count);
  if (order.stepsPerEpoch() > 0)
    warmUp.end = endOfWarmUp(warmUp.steps, order, resumed);
  if (isInEpochs) {
    schedule.begin = order.samplesBefore(warmUp.end);
    schedule.end = options.epochs.value_or(0) * order.samplesPerEpoch();
    schedule.stepSize *= order.samplesPerEpoch();
  }
  share = schedule;
  share.baseRate = 1;
  share.minRate = schedule.baseRate > 0 ? schedule.minRate / schedule.baseRate : 0;
}

double RunLearningRate::rateIn(const LearningRateSchedule &schedule, std::int64_t step) const {
  if (!isInEpochs)
    return schedule.at(step, step - 1);
  const TrainingOrder::Batch batch = order.at(step);
  return schedule.at(step, order.samplesBefore({batch.epoch, batch.firstSample}));
}

} // namespace fsdpc::rt
