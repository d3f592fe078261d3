// The learning rate of every step, in closed form.
//
// With i = step - 1, W = warmup steps, T = total - W, and m = min_lr:
//   warmup (i < W)  lr (i + 1) / W                  = torch LinearLR(start_factor=1/W, total_iters=W-1)
//   constant        lr
//   step            lr gamma^floor((i - W) / step_size)                 = torch StepLR
//   linear          lr + (m - lr) (i - W) / T       = torch LinearLR(end_factor=m/lr, total_iters=T)
//   cosine          m + (lr - m) (1 + cos(pi (i - W) / T)) / 2
//                                                   = torch CosineAnnealingLR(T_max=T, eta_min=m)
//   wsd             lr up to 80 % of all steps, then
//                   m + (lr - m) (1 - sqrt(share of the last 20 % done))
// After the last planned step linear, cosine and wsd stay at m. What follows the warm-up may be counted in samples.
#pragma once

#include <cstdint>

namespace fsdpc::rt {

enum class ScheduleKind : std::uint8_t { constant, cosine, linear, wsd, step };

struct LearningRateSchedule {
  ScheduleKind kind = ScheduleKind::constant;
  double baseRate = 0;
  double minRate = 0;
  double gamma = 0.1;
  std::int64_t warmupSteps = 0;
  /// In steps, or all in samples. `begin`: where the warm-up ends; `stepSize`: at least 1.
  std::int64_t begin = 0, end = 0, stepSize = 1;

  /// `step` counts from 1; `done`: the steps, or the samples, before it.
  double at(std::int64_t step, std::int64_t done) const;
};

} // namespace fsdpc::rt
