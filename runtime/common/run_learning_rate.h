// The learning rate of the steps of a run, which may have had another global batch before it was resumed.
//
// What is stated in steps counts steps: the warm-up, a decay over --steps, --step_size 100. What is stated in epochs
// counts samples: a decay over --epochs, --step_size 1epoch. So at any sample the rate is that of a run that has always
// had its first global batch. A warm-up that is a share of the steps has the number of steps that it had when the run
// began: a resumed run with another total keeps it, unless it is given another share or ends before.
#pragma once

#include "runtime/checkpoint/manifest.h"
#include "runtime/common/learning_rate.h"
#include "runtime/common/options.h"

namespace fsdpc::rt {

class RunLearningRate {
public:
  /// `order`, which must outlive this, begins where `resumed` ended. `totalSteps`: steps of the run, those done
  /// included.
  RunLearningRate(const Options &options, const TrainingOrder &order, std::int64_t totalSteps,
                  const TrainingState &resumed);

  /// `step`: a step of this run.
  double at(std::int64_t step) const { return rateIn(schedule, step); }
  /// Of a scalar in the place of lr. A rate of its own follows the schedule by the same share: where lr is a tenth of
  /// --lr, it is a tenth of itself.
  double at(std::int64_t step, const ScalarInfo &ofGroup, const Options &options) const {
    return ofGroup.factor ? *ofGroup.factor * at(step) : options.scalar(ofGroup.name) * rateIn(share, step);
  }
  /// For checkpoints.
  const WarmUp &warmUpOfRun() const { return warmUp; }

private:
  double rateIn(const LearningRateSchedule &schedule, std::int64_t step) const;

  const TrainingOrder &order;
  WarmUp warmUp;
  bool isInEpochs;
  LearningRateSchedule schedule;
  LearningRateSchedule share; ///< the same from a base rate of 1
};

} // namespace fsdpc::rt
