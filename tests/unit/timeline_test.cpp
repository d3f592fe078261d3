// The simulator: when collectives begin, what they wait for, and how much of them stays exposed.
#include "passes/cost/fit.h"
#include "passes/cost/timeline.h"

#include "ir/ops/attributes.h"
#include "ir/text/text.h"
#include "llvm/Support/MemoryBuffer.h"
#include <gtest/gtest.h>

namespace fsdpc {
namespace {

constexpr double matmulMicroseconds = 100, collectiveMicroseconds = 60;

/// Every matmul takes 100, every collective 60, everything else 0.
CostModel plainModel() {
  CostModel model;
  for (ComputeRate &rate : model.hardware.compute)
    rate = {1e18, 1e18, 1e18, 0};
  model.hardware.rateOf(ComputeClass::matmul).overheadMicroseconds = matmulMicroseconds;
  for (Link *link : {&model.hardware.nodeLocal, &model.hardware.network})
    *link = {Algorithm::ring, {{"", collectiveMicroseconds, 0, 1e18}}};
  return model;
}

std::unique_ptr<Module> parseModule(const std::string &text) {
  auto module = parse(llvm::MemoryBufferRef(text, "test.fsir"));
  EXPECT_TRUE(static_cast<bool>(module)) << (module ? "" : llvm::toString(module.takeError()));
  return module ? std::move(*module) : nullptr;
}

/// Three units, one matmul each; `body` is the micro step, `decisions` a line or nothing.
std::unique_ptr<Module> threeUnits(const std::string &body, const std::string &decisions = "") {
  std::string text = "module @three stage(async) mesh(shard = 2)\n" + decisions + "unit @a\nunit @b\nunit @c\n";
  for (std::string unit : {"a", "b", "c"})
    text += "state @" + unit + ".p segment : f32[32] unit(@" + unit + ") over(@shard) padded(64) slots(@" + unit +
            ".w at 0 size 16)\n";
  return parseModule(text + "\nfunc @micro_step(%x: f32[4,4] input) {\n" + body + "}\n");
}

constexpr const char *prefetched = R"(
  unit @a forward {
    %sa = read @a.p                                                : f32[32]         on(compute)
    %fa = all_gather.start %sa over(@shard) ranks(2) id(0) unit(@a) : future<f32[64]> on(comm)
    %a.full = wait %fa                                             : f32[64]         on(compute)
    %sb = read @b.p unit(@b)                                       : f32[32]         on(compute)
    %fb = all_gather.start %sb over(@shard) ranks(2) id(1) unit(@b) : future<f32[64]> on(comm)
    %wa = view %a.full                                             : f32[4,4]        on(compute)
    %y = matmul %x, %wa                                            : f32[4,4]        on(compute)
    free %a.full                                                                     on(compute)
  }
  unit @b forward {
    %b.full = wait %fb                                             : f32[64]         on(compute)
    %sc = read @c.p unit(@c)                                       : f32[32]         on(compute)
    %fc = all_gather.start %sc over(@shard) ranks(2) id(2) unit(@c) : future<f32[64]> on(comm)
    %wb = view %b.full                                             : f32[4,4]        on(compute)
    %z = matmul %y, %wb                                            : f32[4,4]        on(compute)
    free %b.full                                                                     on(compute)
  }
  unit @c forward {
    %c.full = wait %fc                                             : f32[64]         on(compute)
    free %c.full                                                                     on(compute)
  }
  return %z results("z")
)";

TEST(Timeline, aGatherIsExposedByWhatTheComputeStreamWaits) {
  auto module = threeUnits(prefetched);
  Timeline timeline = simulate(*module, plainModel());
  const std::vector<TimelineCollective> &collectives = timeline.functions[0].collectives;
  ASSERT_EQ(collectives.size(), 3u);
  EXPECT_EQ(collectives[0].exposedMicroseconds, 60);
  EXPECT_EQ(collectives[0].reason, StartReason::none);
  EXPECT_EQ(collectives[1].exposedMicroseconds, 0);
  EXPECT_EQ(hiddenBehindText(collectives[1]), "a");
  EXPECT_EQ(timeline.exposedMicroseconds, 60);
  EXPECT_EQ(timeline.stepMicroseconds, 60 + 2 * 100);
  EXPECT_EQ(timeline.communicationMicroseconds, 3 * 60);
}

TEST(Timeline, whatIsLongerThanItsCoverIsExposedByTheRest) {
  auto module = threeUnits(prefetched);
  CostModel model = plainModel();
  model.hardware.nodeLocal.slowMicroseconds = 90;
  Timeline timeline = simulate(*module, model);
  EXPECT_EQ(timeline.functions[0].collectives[1].exposedMicroseconds, 150 - 100);
  EXPECT_EQ(timeline.exposedMicroseconds, 150 + 50 + 50);
}

TEST(Timeline, inlineStreamsRunACollectiveInItsWait) {
  auto module = threeUnits(prefetched);
  CostModel model = plainModel();
  model.inlineStreams = true;
  Timeline timeline = simulate(*module, model);
  for (const TimelineCollective &collective : timeline.functions[0].collectives) {
    EXPECT_EQ(collective.exposedMicroseconds, 60);
    EXPECT_EQ(collective.beginMicroseconds, collective.waitMicroseconds);
  }
  EXPECT_EQ(timeline.stepMicroseconds, 2 * 100 + 3 * 60);
}

constexpr const char *reduction = R"(
  unit @a backward {
    %sa = read @a.p                                                : f32[32]         on(compute)
    %fa = all_gather.start %sa over(@shard) ranks(2) id(0) unit(@a) : future<f32[64]> on(comm)
    %g = matmul %x, %x                                             : f32[4,4]        on(compute)
    %h = matmul %x, %g                                             : f32[4,4]        on(compute)
    %sb = read @b.p                                                : f32[32]         on(compute)
    %fb = all_gather.start %sb over(@shard) ranks(2) id(1) unit(@b) : future<f32[64]> on(comm)
    %pack = pack %h offsets(0)                                     : f32[64]         on(compute)
    %fr = reduce_scatter.start %pack over(@shard) ranks(2) id(2) unit(@a) : future<f32[32]> on(REDUCTIONS)
    %b.full = wait %fb                                             : f32[64]         on(compute)
    %r = wait %fr                                                  : f32[32]         on(compute)
    %a.full = wait %fa                                             : f32[64]         on(compute)
  }
  return %r results("r")
)";

std::string replaced(std::string text, const std::string &from, const std::string &to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(Timeline, aStreamIsAFifoAndNamesTheCollectiveAhead) {
  auto module = threeUnits(replaced(reduction, "REDUCTIONS", "comm"));
  Timeline timeline = simulate(*module, plainModel());
  const TimelineCollective &gather = timeline.functions[0].collectives[1];
  const TimelineCollective &scatter = timeline.functions[0].collectives[2];
  EXPECT_EQ(gather.beginMicroseconds, 200);
  EXPECT_EQ(scatter.beginMicroseconds, gather.endMicroseconds);
  EXPECT_EQ(scatter.reason, StartReason::order);
  EXPECT_EQ(whyNotEarlier(scatter), "order: all_gather 1 of b");
  EXPECT_EQ(timeline.exposedMicroseconds, 120);
}

TEST(Timeline, reductionsOnAStreamOfTheirOwnDoNotQueueBehindGathers) {
  auto module = threeUnits(replaced(reduction, "REDUCTIONS", "reduce"), "decisions own_reduce_communicator\n");
  ASSERT_NE(module, nullptr);
  Timeline timeline = simulate(*module, plainModel());
  const TimelineCollective &scatter = timeline.functions[0].collectives[2];
  EXPECT_EQ(scatter.beginMicroseconds, 200);
  EXPECT_EQ(scatter.reason, StartReason::dependency);
  EXPECT_EQ(whyNotEarlier(scatter), "dependency: %h of a");
  EXPECT_EQ(timeline.exposedMicroseconds, 60);
}

/// A gather that is started in one function and waited for in the next.
constexpr const char *carried = R"(
func @prologue() {
  unit @a forward {
    %sa = read @a.p                                                : f32[32]         on(compute)
    %fa = all_gather.start %sa over(@shard) ranks(2) id(0) unit(@a) : future<f32[64]> on(comm)
  }
  return %fa results("fa")
}

func @micro_step(%x: f32[4,4] input, %fa: future<f32[64]> carry) {
  unit @a forward {
    %y = matmul %x, %x                                             : f32[4,4]        on(compute)
    %a.full = wait %fa                                             : f32[64]         on(compute)
    free %a.full                                                                     on(compute)
  }
  return %y results("y")
}
)";

TEST(Timeline, aCarriedGatherIsHiddenBehindTheNextFunction) {
  auto module = parseModule("module @m stage(async) mesh(shard = 2)\nunit @a\n"
                            "state @a.p segment : f32[32] unit(@a) over(@shard) padded(64) slots(@a.w at 0 size 16)\n" +
                            std::string(carried));
  ASSERT_NE(module, nullptr);
  CostModel model = plainModel();
  EXPECT_EQ(simulate(*module, model).exposedMicroseconds, 0);
  model.hardware.nodeLocal.slowMicroseconds = 90;
  Timeline timeline = simulate(*module, model);
  EXPECT_EQ(timeline.exposedMicroseconds, 150 - 100);
  EXPECT_EQ(timeline.functions[0].collectives[0].exposedMicroseconds, 50);
  EXPECT_EQ(timeline.stepMicroseconds, 150);
  model.inlineStreams = true;
  EXPECT_EQ(simulate(*module, model).stepMicroseconds, 100 + 150);
}

/// The last node of a step starts a collective that the next step waits for.
constexpr const char *carriedOverSteps = R"(
func @micro_step(%x: f32[4,4] input, %next: future<f32[64]> carry) {
  unit @a forward {
    %y = matmul %x, %x                                             : f32[4,4]        on(compute)
    %a.full = wait %next                                           : f32[64]         on(compute)
    free %a.full                                                                     on(compute)
  }
  return %y results("y")
}

func @update() {
  unit @a update {
    %sa = read @a.p                                                : f32[32]         on(compute)
    %fa = all_gather.start %sa over(@shard) ranks(2) id(0) unit(@a) : future<f32[64]> on(comm)
  }
  return %fa results("next")
}
)";

TEST(Timeline, whatTheStepBeforeStartedIsThatOfTheSecondOfTwoSteps) {
  auto module = parseModule("module @m stage(async) mesh(shard = 2)\nunit @a\n"
                            "state @a.p segment : f32[32] unit(@a) over(@shard) padded(64) slots(@a.w at 0 size 16)\n" +
                            std::string(carriedOverSteps));
  ASSERT_NE(module, nullptr);
  CostModel model = plainModel();
  model.hardware.nodeLocal.slowMicroseconds = 90;
  Timeline timeline = simulate(*module, model);
  EXPECT_EQ(timeline.stepMicroseconds, 150);
  const TimelineCollective &gather = timeline.functions[1].collectives[0];
  EXPECT_NE(gather.wait, nullptr);
  EXPECT_EQ(gather.exposedMicroseconds, 50);
  EXPECT_EQ(hiddenBehindText(gather), "a");
}

TEST(Timeline, whatIsIssuedBehindAWaitForTheStepBeforeNamesItsGather) {
  std::string text = carriedOverSteps;
  text.replace(text.find("    free %a.full"), 0,
               "    %sb = read @a.p                       : f32[32]         on(compute)\n"
               "    %fb = all_gather.start %sb over(@shard) ranks(2) id(1) unit(@a) : future<f32[64]> on(comm)\n"
               "    %b.full = wait %fb                    : f32[64]         on(compute)\n"
               "    free %b.full                                            on(compute)\n");
  auto module = parseModule("module @m stage(async) mesh(shard = 2)\nunit @a\n"
                            "state @a.p segment : f32[32] unit(@a) over(@shard) padded(64) slots(@a.w at 0 size 16)\n" +
                            text);
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(whyNotEarlier(simulate(*module, plainModel()).functions[0].collectives[0]), "order: all_gather 0 of a");
}

constexpr const char *bounded = R"(
  unit @a forward {
    %sa = read @a.p                                                : f32[32]         on(compute)
    %fa = all_gather.start %sa over(@shard) ranks(2) id(0) unit(@a) : future<f32[64]> on(comm)
    %a.full = wait %fa                                             : f32[64]         on(compute)
    %wa = view %a.full                                             : f32[4,4]        on(compute)
    %y = matmul %x, %wa                                            : f32[4,4]        on(compute)
    %gone = free %a.full                                           : token           on(compute)
    %sb = read @b.p                                                : f32[32]         on(compute)
    %fb = all_gather.start %sb over(@shard) ranks(2) id(1) unit(@b) after(%gone) : future<f32[64]> on(comm)
    %b.full = wait %fb                                             : f32[64]         on(compute)
    free %b.full                                                                     on(compute)
  }
  return %y results("y")
)";

TEST(Timeline, aGatherAfterTheFreeThatMakesRoomMeetsTheBound) {
  auto module = threeUnits(bounded, "decisions max_inflight_all_gathers(1)\n");
  const TimelineCollective gather = simulate(*module, plainModel()).functions[0].collectives[1];
  EXPECT_EQ(gather.beginMicroseconds, 160);
  EXPECT_EQ(gather.reason, StartReason::inflightBound);
  EXPECT_EQ(whyNotEarlier(gather), "in-flight bound: free %a.full of a");
}

TEST(Timeline, aGatherWithRoomLeftWaitsForItsMemory) {
  auto module = threeUnits(bounded, "decisions max_inflight_all_gathers(3)\n");
  const TimelineCollective gather = simulate(*module, plainModel()).functions[0].collectives[1];
  EXPECT_EQ(gather.reason, StartReason::memory);
  EXPECT_EQ(whyNotEarlier(gather), "memory: free %a.full of a");
}

TEST(Timeline, aHostThatRunsAheadIssuesBeforeThePlaceInTheProgram) {
  auto module = threeUnits(replaced(bounded, " after(%gone)", ""));
  CostModel model = plainModel();
  EXPECT_EQ(simulate(*module, model).functions[0].collectives[1].beginMicroseconds, 160);
  model.hardware.hostRunsAhead = true;
  EXPECT_EQ(simulate(*module, model).functions[0].collectives[1].beginMicroseconds, 60);
}

/// An all_gather of 1 MiB over groups of 4 of 16 ranks in nodes of 8, `stride` apart.
double gatherMicroseconds(int stride) {
  auto module = parseModule("module @m stage(async) mesh(shard = 4 stride " + std::to_string(stride) + R"(, world = 16)
unit @a
state @a.p segment : f32[65536] unit(@a) over(@shard) padded(262144) slots(@a.w at 0 size 16)
func @export() {
  unit @a forward {
    %s = read @a.p                                         : f32[65536]          on(compute)
    %f = all_gather.start %s over(@shard) ranks(4) id(0)    : future<f32[262144]> on(comm)
    %w = wait %f                                           : f32[262144]         on(compute)
    free %w                                                                      on(compute)
  }
  return
}
)");
  CostModel model = plainModel();
  model.hardware.ranksPerNode = 8;
  model.hardware.nodeLocal.rates = {{"", 1, 2, 1048576}};
  model.hardware.network.rates = {{"", 10, 20, 65536}};
  return simulate(*module, model).functions[0].collectives[0].endMicroseconds;
}

TEST(Timeline, theAxisSaysWhichLinksACollectiveCrosses) {
  EXPECT_DOUBLE_EQ(gatherMicroseconds(1), 1 + 3 * 2 + 0.75);
  EXPECT_DOUBLE_EQ(gatherMicroseconds(4), 10 + 2 * 2 + 1 * 20 + 0.75 * 1048576 / (2 * 65536)); // two ranks per node
}

TEST(Hardware, tablesReadBackAsTheyWereWritten) {
  for (llvm::StringRef name : builtInHardwareNames()) {
    std::string text = toJson(*builtInHardware(name));
    llvm::Expected<Hardware> table = readHardware(text, "table.json");
    ASSERT_TRUE(static_cast<bool>(table)) << llvm::toString(table.takeError());
    EXPECT_EQ(toJson(*table), text);
  }
  EXPECT_FALSE(builtInHardware("abacus_8").has_value());
}

TEST(Hardware, figuresThatMakeNoSenseAreRefused) {
  auto errorOf = [](const std::string &members) {
    llvm::Expected<Hardware> table = readHardware("{\"schema\": \"fsdpc.hardware/2\"" + members + "}", "t.json");
    return table ? "no error" : llvm::toString(table.takeError());
  };
  EXPECT_EQ(errorOf(""), "no error");
  EXPECT_EQ(errorOf(", \"compute\": {\"matmul\": {\"flops_per_us\": 0}}"),
            "t.json: matmul.flops_per_us: a number above 0 is expected");
  EXPECT_EQ(errorOf(", \"network\": {\"rates\": [{\"alpha_us\": -1}]}"),
            "t.json: network.alpha_us: a number of 0 or more is expected");
  EXPECT_EQ(errorOf(", \"network\": {\"rates\": []}"), "t.json: network.rates: at least one is needed");
  llvm::Expected<Hardware> old = readHardware("{\"schema\": \"fsdpc.hardware/1\"}", "t.json");
  EXPECT_EQ(llvm::toString(old.takeError()),
            "t.json: not a hardware table of schema fsdpc.hardware/2, which fsdpc calibrate writes");
}

TEST(FitHardware, findsTheLineThroughSamples) {
  std::string text;
  for (int i = 1; i <= 4; ++i)
    text += "{\"kind\": \"matmul\", \"flops\": " + std::to_string(i * 1000) +
            ", \"bytes\": 8, \"us\": " + std::to_string(3 + i * 10) +
            "}\n{\"kind\": \"all_gather\", \"bytes\": " + std::to_string(i * 500) +
            ", \"us\": " + std::to_string(7 + i) + "}\n";
  llvm::Expected<std::vector<CostSample>> samples = readSamples(text);
  ASSERT_TRUE(static_cast<bool>(samples));
  ASSERT_EQ(samples->size(), 8u);
  Hardware base = *builtInHardware("cpu");
  Hardware fitted = fitHardware(base, *samples, {});
  EXPECT_NEAR(fitted.rateOf(ComputeClass::matmul).overheadMicroseconds, 3, 1e-6);
  EXPECT_NEAR(fitted.rateOf(ComputeClass::matmul).flopsPerMicrosecond, 100, 1e-6);
  // Classes without samples do not change, and a link needs all three collectives.
  EXPECT_EQ(fitted.rateOf(ComputeClass::move).bytesPerMicrosecond, base.rateOf(ComputeClass::move).bytesPerMicrosecond);
  EXPECT_EQ(fitted.nodeLocal.rates.size(), base.nodeLocal.rates.size());
}

TEST(FitHardware, refusesWhatIsNoSample) {
  llvm::Expected<std::vector<CostSample>> samples = readSamples("{\"kind\": \"matmul\"}\n");
  EXPECT_FALSE(static_cast<bool>(samples));
  llvm::consumeError(samples.takeError());
}

} // namespace
} // namespace fsdpc
