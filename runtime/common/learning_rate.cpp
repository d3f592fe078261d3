#include "runtime/common/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fsdpc::rt {

/// (at - begin) / (end - begin) in [0, 1]; 1 for an empty range.
static double share(double at, double begin, double end) {
  return end > begin ? std::clamp((at - begin) / (end - begin), 0.0, 1.0) : 1.0;
}

double LearningRateSchedule::at(std::int64_t step, std::int64_t done) const {
  if (step <= warmupSteps)
    return baseRate * static_cast<double>(step) / static_cast<double>(warmupSteps);
  const auto first = static_cast<double>(begin);
  const auto last = static_cast<double>(end);
  const auto now = static_cast<double>(done);
  switch (kind) {
  case ScheduleKind::constant: return baseRate;
  case ScheduleKind::step: return baseRate * std::pow(gamma, static_cast<double>((done - begin) / stepSize));
  case ScheduleKind::linear: return baseRate + (minRate - baseRate) * share(now, first, last);
  case ScheduleKind::cosine:
    return minRate + (baseRate - minRate) * (1 + std::cos(std::numbers::pi * share(now, first, last))) / 2;
  case ScheduleKind::wsd: break;
  }
  const double decayBegin = std::max(first, 0.8 * last);
  if (now < decayBegin)
    return baseRate;
  return minRate + (baseRate - minRate) * (1 - std::sqrt(share(now, decayBegin, last)));
}

} // namespace fsdpc::rt
