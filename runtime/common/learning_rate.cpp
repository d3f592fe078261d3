#include "runtime/common/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fsdpc::rt {

/// (at - begin) / (end - begin) in [0, 1]; 1 for an empty range.
static double share(double at, double begin, double end) {
  return end > begin ? std::clamp((at - begin) / (end - begin), 0.0, 1.0) : 1.0;
}

double LearningRateSchedule::at(std::int64_t step) const {
  const std::int64_t i = step - 1;
  if (i < warmupSteps)
    return baseRate * static_cast<double>(i + 1) / static_cast<double>(warmupSteps);
  const auto begin = static_cast<double>(warmupSteps);
  const auto end = static_cast<double>(totalSteps);
  const auto now = static_cast<double>(i);
  switch (kind) {
  case ScheduleKind::constant: return baseRate;
  case ScheduleKind::step: return baseRate * std::pow(gamma, static_cast<double>((i - warmupSteps) / stepSize));
  case ScheduleKind::linear: return baseRate + (minRate - baseRate) * share(now, begin, end);
  case ScheduleKind::cosine:
    return minRate + (baseRate - minRate) * (1 + std::cos(std::numbers::pi * share(now, begin, end))) / 2;
  case ScheduleKind::wsd: break;
  }
  const double decayBegin = std::max(begin, 0.8 * end);
  if (now < decayBegin)
    return baseRate;
  return minRate + (baseRate - minRate) * (1 - std::sqrt(share(now, decayBegin, end)));
}

} // namespace fsdpc::rt
