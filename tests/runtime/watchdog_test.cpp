// Heartbeats, the report about a run that hangs, and the agreement of ranks before they begin.
#include "runtime/common/agreement.h"
#include "runtime/common/watchdog.h"
#include "tests/runtime/fake_program.h"
#include "tests/runtime/temporary_folder.h"

#include <gtest/gtest.h>

namespace fsdpc::rt {
namespace {

constexpr double second = 1e9;

/// The page of four ranks, seen by rank 1. All are alive, progressed three seconds ago and arrived at ten collectives.
class FourRanks : public ::testing::Test {
protected:
  FourRanks() {
    pulse.attach(page(), 1, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      Heartbeat &line = page().of(rank);
      line.aliveNanoseconds = monotonicNanoseconds();
      line.progressNanoseconds = monotonicNanoseconds() - static_cast<std::int64_t>(3 * second);
      line.arrivals = 10;
      line.phase = Phase::step;
    }
  }

  void waitFor(const TracedCollective &record) {
    pulse.trace().start(record, 1);
    pulse.trace().beginWait(record.sequence);
  }

  static constexpr int ranks = 4;
  struct alignas(128) Line {
    std::byte bytes[128] = {};
  };
  std::vector<Line> memory = std::vector<Line>(HeartbeatPage::bytesFor(ranks) / sizeof(Line) + 1);
  HeartbeatPage &page() { return *HeartbeatPage::at(memory.data()); }
  Pulse pulse{1};
};

TracedCollective record(std::uint64_t sequence, const char *op, const char *unit) {
  TracedCollective record;
  record.sequence = sequence;
  record.op = op;
  record.unit = unit;
  return record;
}

TEST_F(FourRanks, TheRunIsSilentSinceTheLastRankGotOn) {
  EXPECT_GE(pulse.silentSeconds(), 3);
  page().of(3).beat();
  EXPECT_LT(pulse.silentSeconds(), 3);
}

TEST_F(FourRanks, AWaitIsProgressOnlyWhileNoRankIsStopped) {
  page().of(2).aliveNanoseconds -= 2 * absenceNanoseconds;
  pulse.beatWhileAllRun();
  EXPECT_GE(pulse.silentSeconds(), 3);
  page().of(2).aliveNanoseconds = monotonicNanoseconds();
  pulse.beatWhileAllRun();
  EXPECT_LT(pulse.silentSeconds(), 3);
}

TEST_F(FourRanks, WhoWasAwayItselfCountsAnew) {
  pulse.resumed();
  EXPECT_LT(pulse.silentSeconds(), 3);
}

TEST_F(FourRanks, ARankThatCameToFewerCollectivesIsNamed) {
  page().of(2).arrivals = 9;
  waitFor(record(118, "reduce_scatter", "layers.3"));
  const Diagnosis diagnosis = diagnose(pulse, 2);
  EXPECT_EQ(diagnosis.reporter, 0);
  EXPECT_EQ(diagnosis.failure.code, ExitCode::timeout);
  EXPECT_EQ(diagnosis.failure.details, "unit=layers.3 seq=118 op=reduce_scatter missing=2");
  EXPECT_STREQ(diagnosis.failure.what(),
               "rank 2 did not join within 2 s: reduce_scatter of layers.3, collective 118 of the run");
}

TEST_F(FourRanks, AStoppedRankIsNamedAndDoesNotSpeak) {
  page().of(0).aliveNanoseconds = monotonicNanoseconds() - static_cast<std::int64_t>(3 * second);
  waitFor(record(7, "all_gather", ""));
  const Diagnosis diagnosis = diagnose(pulse, 2);
  EXPECT_EQ(diagnosis.reporter, 1);
  EXPECT_EQ(diagnosis.failure.details, "seq=7 op=all_gather missing=0");
}

TEST_F(FourRanks, OfRanksThatWaitForEachOtherTheFurthestBehindIsNamed) {
  page().of(0).arrivals = 9; // waits for its own group, in which rank 3 is missing
  page().of(3).arrivals = 8;
  waitFor(record(10, "all_reduce", "layers.1"));
  EXPECT_EQ(diagnose(pulse, 2).failure.details, "unit=layers.1 seq=10 op=all_reduce missing=3");
  EXPECT_EQ(diagnose(pulse, 2).reporter, 0);
}

TEST_F(FourRanks, AStoppedRankIsMissingThoughAnotherIsBehind) {
  page().of(0).arrivals = 9;
  page().of(3).aliveNanoseconds = monotonicNanoseconds() - static_cast<std::int64_t>(3 * second);
  EXPECT_EQ(missingRank(pulse, 2), 3);
}

TEST_F(FourRanks, WhoCannotSeeAllNamesOnlyAStoppedRank) {
  page().of(0).aliveNanoseconds = 0; // on another host
  page().of(2).arrivals = 9;
  EXPECT_EQ(missingRank(pulse, 2), std::nullopt);
  page().of(2).aliveNanoseconds = monotonicNanoseconds() - static_cast<std::int64_t>(3 * second);
  EXPECT_EQ(missingRank(pulse, 2), 2);
}

TEST_F(FourRanks, OutsideOfCollectivesThePhaseIsNamed) {
  page().of(3).arrivals = 9;
  page().of(3).phase = Phase::saving;
  const Diagnosis diagnosis = diagnose(pulse, 2);
  EXPECT_EQ(diagnosis.failure.details, "phase=saving missing=3");
  EXPECT_EQ(diagnosis.reporter, 0);
}

TEST_F(FourRanks, RanksOfOtherHostsAreNotBlamed) {
  page().of(0).aliveNanoseconds = 0;
  page().of(0).arrivals = 0;
  const Diagnosis diagnosis = diagnose(pulse, 2);
  EXPECT_EQ(diagnosis.failure.details, "phase=step");
  EXPECT_EQ(diagnosis.reporter, 1);
}

TEST_F(FourRanks, WhoWaitsForARankOfAnotherHostReportsThoughItIsBehind) {
  page().of(2).aliveNanoseconds = page().of(3).aliveNanoseconds = 0; // on another host, whose link is cut
  page().of(0).arrivals = 9;
  waitFor(record(10, "all_reduce", "layers.1"));
  const Diagnosis diagnosis = diagnose(pulse, 2);
  EXPECT_EQ(diagnosis.failure.details, "unit=layers.1 seq=10 op=all_reduce");
  EXPECT_EQ(diagnosis.reporter, 0);
}

TEST_F(FourRanks, OneRankOnlyEndsTheRun) {
  EXPECT_TRUE(page().claimEnd(2, 6));
  EXPECT_FALSE(page().claimEnd(1, 5));
  EXPECT_EQ(page().ended(), 3u << 16 | 6u);
}

TEST_F(FourRanks, DetachedTheRankKeepsItsPlace) {
  pulse.setStep(5);
  pulse.enter(Phase::saving);
  pulse.detach();
  page().of(1).step = 9;
  EXPECT_EQ(pulse.line().step, 5);
  EXPECT_EQ(pulse.line().phase, Phase::saving);
  EXPECT_LT(pulse.silentSeconds(), 3);
}

TEST(CollectiveTrace, KeepsTheLastOnesWithTheirMoments) {
  CollectiveTrace trace;
  const std::uint64_t last = CollectiveTrace::capacity + 3;
  for (std::uint64_t sequence = 1; sequence <= last; ++sequence)
    trace.start(record(sequence, "all_gather", "a"), 1);
  EXPECT_EQ(trace.lastSequence(), last);
  EXPECT_FALSE(trace.at(3));
  EXPECT_FALSE(trace.at(last + 1));
  EXPECT_STREQ(trace.at(4)->state(), "started");
  trace.begin(last, 2);
  trace.beginWait(last);
  EXPECT_EQ(trace.waitingFor(), last);
  EXPECT_STREQ(trace.at(last)->state(), "begun");
  trace.finish(last, 3);
  EXPECT_STREQ(trace.at(last)->state(), "done");
  trace.endWait(last, 4);
  EXPECT_STREQ(trace.at(last)->state(), "waited");
  EXPECT_EQ(trace.waitingFor(), 0u);
  trace.finish(2, 5); // left the ring: its entry belongs to another collective
  EXPECT_STREQ(trace.at(CollectiveTrace::capacity + 2)->state(), "started");
}

TEST(Agreement, DifferentOptionsAreListedWithBothValues) {
  const FakeProgram program(2);
  const auto failure = onRanks(2, [&](Platform &platform) {
    std::vector<const char *> arguments{"--steps", "0", "--log_freq", "5", "--lr", "0.5"};
    if (platform.rank() == 1)
      arguments[3] = "6";
    requireSameOptions(platform, parseOptions(program.info, arguments));
  });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ExitCode::disagreement);
  EXPECT_STREQ(failure->what(), "rank 1 was started with other options: --log_freq 6 (rank 0: 5)");
  EXPECT_EQ(failure->details, "differs=options other=1");
}

TEST(Agreement, EqualRanksGoOn) {
  const FakeProgram program(2);
  EXPECT_FALSE(onRanks(2, [&](Platform &platform) {
    requireSameProgram(platform, program.info, "/proc/self/exe");
    requireSameOptions(platform, parseOptions(program.info, std::vector<const char *>{"--steps", "0"}));
  }));
}

TEST(Agreement, AnotherPlanAndAnotherBinaryAreTold) {
  TemporaryFolder folder;
  folder.write("0", "one build");
  folder.write("1", "or another");
  const FakeProgram program(2);
  const auto binary = onRanks(2, [&](Platform &platform) {
    requireSameProgram(platform, program.info, folder.path(std::to_string(platform.rank())));
  });
  ASSERT_TRUE(binary);
  EXPECT_EQ(binary->details, "differs=binary other=1");
  FakeProgram other(1);
  other.info.planHash = "1";
  const auto plan = onRanks(2, [&](Platform &platform) {
    const int rank = platform.rank();
    requireSameProgram(platform, rank ? other.info : program.info, folder.path(std::to_string(rank)));
  });
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->details, "differs=plan other=1");
  EXPECT_NE(std::string(plan->what()).find("plan 1 (fake, compiled for 1 ranks)"), std::string::npos) << plan->what();
}

TEST(Agreement, ResultsThatRanksHaveInCommonHaveTheSameBits) {
  const auto compared = [](std::uint64_t otherResult, std::uint64_t otherFingerprint, const char *op) {
    return onRanks(2, [&](Platform &platform) {
      Pulse pulse(platform.rank());
      for (std::uint64_t sequence = 1; sequence <= 300; ++sequence) {
        TracedCollective made = record(sequence, op, "a");
        const bool differs = platform.rank() == 1 && sequence == 290;
        made.fingerprint = differs ? otherFingerprint : 7;
        pulse.trace().start(made, 1);
        pulse.trace().hash(sequence, 1, differs ? otherResult : 2);
        pulse.trace().endWait(sequence, 2);
      }
      requireSameTraces(platform, pulse);
    });
  };
  EXPECT_FALSE(compared(2, 7, "all_reduce"));
  EXPECT_FALSE(compared(3, 7, "reduce_scatter"));
  const auto bits = compared(3, 7, "all_reduce");
  ASSERT_TRUE(bits);
  EXPECT_STREQ(bits->what(), "rank 1 has another result than rank 0: all_reduce of a, collective 290 of the run");
  EXPECT_EQ(bits->details, "unit=a seq=290 op=all_reduce other=1");
  const auto order = compared(2, 8, "all_reduce");
  ASSERT_TRUE(order);
  EXPECT_STREQ(order->what(),
               "rank 1 reached another collective than rank 0: all_reduce of a, collective 290 of the run");
}

} // namespace
} // namespace fsdpc::rt
