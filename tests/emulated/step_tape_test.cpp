// Times of a step's sections and collectives, called and in a graph, and the ranges that profilers see.
#include "runtime/cuda/section_ranges.h"
#include "runtime/cuda/step_graph.h"
#include "runtime/cuda/step_tape.h"
#include "tests/emulated/interleaving.h"
#include "tests/emulated/members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>

namespace fsdpc::rt {
namespace {

using emulated::Interleaved;

constexpr SectionInfo sections[] = {{"micro_step", "layers.0", "forward", 0, -1, 0}, {"update", "", "", 9, -1, 0}};

Ticket gather(Member &m) { return allGatherStart(m.context, 0, Member::place(0), m.at(16), sizeof(float)); }

/// Two sections. The first starts a gather, and the second waits for it.
void callSections(Member &m, Ticket &ticket) {
  runSection(
      m.context, 0, +[](Context &, Member *const &member, Ticket *const &started) { *started = gather(*member); }, &m,
      &ticket);
  runSection(m.context, 1, +[](Context &c, Ticket *const &started) { wait(c, *started); }, &ticket);
}

void expectTimes(const StepTape &tape) {
  ASSERT_EQ(tape.sections().size(), 2u);
  const SectionRecord &first = tape.sections()[0], &second = tape.sections()[1];
  EXPECT_LE(first.begin, first.end);
  EXPECT_LE(first.end, second.begin);
  ASSERT_EQ(tape.collectives().size(), 1u);
  const CollectiveRecord &collective = tape.collectives()[0];
  EXPECT_LE(collective.started, collective.begun);
  EXPECT_LE(collective.begun, collective.done);
  EXPECT_LE(collective.done, collective.waitLeft);
  EXPECT_LE(second.begin, collective.waitEntered);
  EXPECT_LE(collective.waitLeft, second.end);
  EXPECT_GT(tape.times().communicationMicroseconds, 0);
  EXPECT_FALSE(tape.times().skewMicroseconds);
}

TEST(StepTape, HasTheTimesOfACalledStepAndOfEveryReplay) {
  for (unsigned seed = 0; seed < 16; ++seed) {
    const Interleaved interleaved(seed);
    runMembers(2, [&](Member &m) {
      m.program.sections = sections;
      SectionRanges ranges(m.program, m.device);
      m.context.observer = &ranges;
      StepTape tape(m.context, std::size(sections), m.device.collectives.size(), true);
      Ticket ticket;
      m.device.tape = &tape;
      tape.begin();
      callSections(m, ticket);
      tape.read();
      expectTimes(tape);
      StepGraph graph(m.context);
      tape.clear();
      ASSERT_EQ(graph.capture([&] { callSections(m, ticket); }), std::nullopt);
      m.device.tape = nullptr;
      for (int launch = 0; launch < 2; ++launch) {
        const auto before = ProfileClock::now();
        tape.begin();
        graph.launch();
        tape.read();
        expectTimes(tape);
        EXPECT_GE(tape.sections()[0].begin, before);
      }
      synchronizeCompute(m.device);
    });
  }
}

TEST(StepTape, AWaitForAGatherOfTheStepBeforeIsExposedHere) {
  const Interleaved interleaved(0);
  runMembers(2, [&](Member &m) {
    const Ticket ticket = gather(m);
    StepTape tape(m.context, 0, m.device.collectives.size(), false);
    m.device.tape = &tape;
    tape.begin();
    wait(m.context, ticket);
    m.device.tape = nullptr;
    tape.read();
    ASSERT_EQ(tape.collectives().size(), 1u);
    EXPECT_EQ(tape.times().communicationMicroseconds, 0);
    EXPECT_GE(tape.times().exposedMicroseconds, 0);
    EXPECT_TRUE(tape.sections().empty());
  });
}

TEST(SectionRanges, AreNamedLikeTheProfilesSpans) {
  const Interleaved interleaved(0);
  runMembers(1, [&](Member &m) {
    m.program.sections = sections;
    SectionRanges ranges(m.program, m.device);
    m.context.observer = &ranges;
    std::vector<std::string> seen;
    emulated::ranges = &seen;
    Ticket ticket;
    callSections(m, ticket);
    emulated::ranges = nullptr;
    EXPECT_THAT(seen, testing::ElementsAre("push layers.0 forward", "pop", "push update", "pop"));
    synchronizeCompute(m.device);
  });
}

TEST(SectionRanges, HaveTheRangesOfTheirNodesInside) {
  constexpr NodeInfo nodes[] = {{0, "matmul y"}, {0, "add z"}, {1, "adamw"}};
  const Interleaved interleaved(0);
  runMembers(1, [&](Member &m) {
    m.program.sections = sections;
    m.program.nodes = nodes;
    SectionRanges ranges(m.program, m.device);
    m.context.observer = &ranges;
    std::vector<std::string> seen;
    emulated::ranges = &seen;
    const auto twoNodes = [](Context &c) {
      beginNode(c, 0);
      beginNode(c, 1);
    };
    runSection(m.context, 0, +twoNodes);
    runSection(m.context, 1, +[](Context &c) { beginNode(c, 0); });
    emulated::ranges = nullptr;
    EXPECT_THAT(seen, testing::ElementsAre("push layers.0 forward", "push matmul y", "pop", "push add z", "pop", "pop",
                                           "push update", "push adamw", "pop", "pop"));
  });
}

} // namespace
} // namespace fsdpc::rt
