#include "runtime/common/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace fsdpc::rt {
namespace {

LearningRateSchedule schedule(ScheduleKind kind) {
  LearningRateSchedule result;
  result.kind = kind;
  result.baseRate = 0.4;
  result.end = 100;
  return result;
}

LearningRateSchedule warmedUp(ScheduleKind kind, std::int64_t steps) {
  LearningRateSchedule result = schedule(kind);
  result.warmupSteps = result.begin = steps;
  return result;
}

double rate(const LearningRateSchedule &schedule, std::int64_t step) { return schedule.at(step, step - 1); }

TEST(LearningRate, StepIsTorchStepLR) {
  LearningRateSchedule s = schedule(ScheduleKind::step);
  s.stepSize = 10;
  s.gamma = 0.5;
  double torch = 0.4; // lr of the recursion: multiplied by gamma whenever the step count is a multiple of step_size
  for (int i = 0; i < 40; ++i) {
    if (i > 0 && i % 10 == 0)
      torch *= 0.5;
    EXPECT_DOUBLE_EQ(rate(s, i + 1), torch);
  }
}

TEST(LearningRate, CosineIsTorchCosineAnnealingLR) {
  LearningRateSchedule s = schedule(ScheduleKind::cosine);
  s.minRate = 0.1;
  for (int i = 0; i <= 100; ++i)
    EXPECT_DOUBLE_EQ(rate(s, i + 1), 0.1 + 0.3 * (1 + std::cos(std::numbers::pi * i / 100)) / 2);
  EXPECT_DOUBLE_EQ(rate(s, 1000), 0.1);
}

TEST(LearningRate, LinearIsTorchLinearLR) {
  LearningRateSchedule s = schedule(ScheduleKind::linear);
  for (int i = 0; i <= 100; ++i)
    EXPECT_NEAR(rate(s, i + 1), 0.4 * (1 - i / 100.0), 1e-15);
}

TEST(LearningRate, WarmupRisesToTheFullRateAndTheCourseStartsThere) {
  for (const ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::cosine, ScheduleKind::linear, ScheduleKind::wsd}) {
    const LearningRateSchedule s = warmedUp(kind, 4);
    EXPECT_DOUBLE_EQ(rate(s, 1), 0.1);
    EXPECT_DOUBLE_EQ(rate(s, 2), 0.2);
    EXPECT_DOUBLE_EQ(rate(s, 4), 0.4);
    EXPECT_DOUBLE_EQ(rate(s, 5), 0.4);
  }
  const LearningRateSchedule s = warmedUp(ScheduleKind::cosine, 20);
  EXPECT_DOUBLE_EQ(rate(s, 61), 0.2); // half of the 80 steps that follow
}

TEST(LearningRate, WsdFallsOverTheLastFifth) {
  LearningRateSchedule s = schedule(ScheduleKind::wsd);
  EXPECT_DOUBLE_EQ(rate(s, 80), 0.4);
  EXPECT_DOUBLE_EQ(rate(s, 81), 0.4);
  EXPECT_DOUBLE_EQ(rate(s, 86), 0.2); // 1 - sqrt(5 / 20)
  EXPECT_DOUBLE_EQ(rate(s, 101), 0.0);
}

TEST(LearningRate, WarmupLongerThanTheRunNeverDividesByZero) {
  const LearningRateSchedule s = warmedUp(ScheduleKind::cosine, 200);
  EXPECT_DOUBLE_EQ(rate(s, 100), 0.2);
  EXPECT_DOUBLE_EQ(rate(s, 201), 0.0);
}

} // namespace
} // namespace fsdpc::rt
