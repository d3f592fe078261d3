// The records of --profile: which steps are kept, and their contents in the trace.
#include "runtime/common/profile.h"

#include "runtime/common/json.h"

#include <gtest/gtest.h>

namespace fsdpc::rt {
namespace {

const SectionInfo sections[] = {{"micro_step", "a\"b", "forward", 4, 1.5, 2.5}, {"eval_step", "", "", 0, -1, 0}};
const CollectiveInfo collectives[] = {{"all_gather", "a\"b", "7", 64, 0, Channel::reduce, 0.5, 2}};

ProgramInfo program() {
  ProgramInfo info{};
  info.modelName = "m";
  info.planHash = "hash";
  info.worldSize = 2;
  info.gradientAccumulationSteps = 1;
  info.sections = sections;
  return info;
}

int count(const std::string &text, const std::string &part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

void expectJson(const std::string &text) {
  JsonReader reader(text, "trace");
  while (reader.next() != JsonToken::end) {
  }
}

TEST(Profile, KeepsTheLastSteps) {
  const ProgramInfo info = program();
  Profile profile(info, collectives, ProfileClock::now());
  const int last = static_cast<int>(Profile::keptSteps) + 5;
  for (int step = 1; step <= last; ++step) {
    profile.beginStep(step);
    endSection(profile.beginSection(0));
    profile.endStep();
  }
  const std::string trace = profile.trace(0);
  expectJson(trace);
  EXPECT_EQ(count(trace, R"("cat":"step")"), static_cast<int>(Profile::keptSteps));
  EXPECT_EQ(count(trace, R"("name":"step 5",)"), 0);
  EXPECT_EQ(count(trace, R"("name":"step 6",)"), 1);
  EXPECT_EQ(count(trace, R"("name":"step 25",)"), 1);
}

TEST(Profile, RecordsNothingOutsideAStep) {
  const ProgramInfo info = program();
  Profile profile(info, collectives, ProfileClock::now());
  EXPECT_EQ(profile.beginSection(0), nullptr);
  EXPECT_EQ(profile.startCollective(0), nullptr);
  endSection(nullptr);
  expectJson(profile.trace(1));
}

TEST(Profile, AStepThatDoesMoreThanTheTablesSayLosesTheRest) {
  const ProgramInfo info = program();
  Profile profile(info, collectives, ProfileClock::now());
  profile.beginStep(1);
  EXPECT_NE(profile.beginSection(0), nullptr);
  EXPECT_NE(profile.beginSection(0), nullptr);
  EXPECT_EQ(profile.beginSection(0), nullptr);
  EXPECT_NE(profile.startCollective(0), nullptr);
  EXPECT_EQ(profile.startCollective(0), nullptr);
  profile.endStep();
}

TEST(Profile, ACollectiveThatNeverRanIsNotDrawn) {
  const ProgramInfo info = program();
  Profile profile(info, collectives, ProfileClock::now());
  profile.beginStep(1);
  CollectiveRecord *record = profile.startCollective(0);
  profile.endStep();
  EXPECT_EQ(count(profile.trace(0), R"("name":"all_gather 7 of a\"b","pid":100,)"), 0);
  record->begun = record->done = record->waitEntered = record->waitLeft = ProfileClock::now();
  const std::string trace = profile.trace(0);
  expectJson(trace);
  EXPECT_EQ(count(trace, R"("name":"all_gather 7 of a\"b","pid":100,)"), 1);
  EXPECT_EQ(count(trace, R"("name":"wait all_gather 7 of a\"b")"), 1);
}

TEST(Profile, PredictedIsASecondProcessWithWhatBelongsToAStep) {
  const ProgramInfo info = program();
  Profile profile(info, collectives, ProfileClock::time_point{});
  const std::string trace = profile.trace(3);
  EXPECT_EQ(count(trace, R"("args":{"name":"measured, rank 3"})"), 1);
  EXPECT_EQ(count(trace, R"("args":{"name":"predicted"})"), 1);
  EXPECT_EQ(count(trace, R"("name":"a\"b forward","pid":450,"tid":450,"ts":1.500,"dur":2.500)"), 1);
  EXPECT_EQ(count(trace, R"("name":"all_gather 7 of a\"b","pid":450,"tid":452,"ts":0.500,"dur":2.000)"), 1);
  EXPECT_EQ(count(trace, "eval_step"), 0);
}

} // namespace
} // namespace fsdpc::rt
