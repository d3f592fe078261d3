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
  result.totalSteps = 100;
  return result;
}

TEST(LearningRate, StepIsTorchStepLR) {
  LearningRateSchedule s = schedule(ScheduleKind::step);
  s.stepSize = 10;
  s.gamma = 0.5;
  double torch = 0.4; // lr of the recursion: multiplied by gamma whenever the step count is a multiple of step_size
  for (int i = 0; i < 40; ++i) {
    if (i > 0 && i % 10 == 0)
      torch *= 0.5;
    EXPECT_DOUBLE_EQ(s.at(i + 1), torch);
  }
}

TEST(LearningRate, CosineIsTorchCosineAnnealingLR) {
  LearningRateSchedule s = schedule(ScheduleKind::cosine);
  s.minRate = 0.1;
  for (int i = 0; i <= 100; ++i)
    EXPECT_DOUBLE_EQ(s.at(i + 1), 0.1 + 0.3 * (1 + std::cos(std::numbers::pi * i / 100)) / 2);
  EXPECT_DOUBLE_EQ(s.at(1000), 0.1);
}

TEST(LearningRate, LinearIsTorchLinearLR) {
  LearningRateSchedule s = schedule(ScheduleKind::linear);
  for (int i = 0; i <= 100; ++i)
    EXPECT_NEAR(s.at(i + 1), 0.4 * (1 - i / 100.0), 1e-15);
}

TEST(LearningRate, WarmupRisesToTheFullRateAndTheCourseStartsThere) {
  for (const ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::cosine, ScheduleKind::linear, ScheduleKind::wsd}) {
    LearningRateSchedule s = schedule(kind);
    s.warmupSteps = 4;
    EXPECT_DOUBLE_EQ(s.at(1), 0.1);
    EXPECT_DOUBLE_EQ(s.at(2), 0.2);
    EXPECT_DOUBLE_EQ(s.at(4), 0.4);
    EXPECT_DOUBLE_EQ(s.at(5), 0.4);
  }
  LearningRateSchedule s = schedule(ScheduleKind::cosine);
  s.warmupSteps = 20;
  EXPECT_DOUBLE_EQ(s.at(61), 0.2); // half of the 80 steps that follow
}

TEST(LearningRate, WsdFallsOverTheLastFifth) {
  LearningRateSchedule s = schedule(ScheduleKind::wsd);
  EXPECT_DOUBLE_EQ(s.at(80), 0.4);
  EXPECT_DOUBLE_EQ(s.at(81), 0.4);
  EXPECT_DOUBLE_EQ(s.at(86), 0.2); // 1 - sqrt(5 / 20)
  EXPECT_DOUBLE_EQ(s.at(101), 0.0);
}

TEST(LearningRate, WarmupLongerThanTheRunNeverDividesByZero) {
  LearningRateSchedule s = schedule(ScheduleKind::cosine);
  s.warmupSteps = 200;
  EXPECT_DOUBLE_EQ(s.at(100), 0.2);
  EXPECT_DOUBLE_EQ(s.at(201), 0.0);
}

} // namespace
} // namespace fsdpc::rt
