// A step as one graph: the same numbers as by calls, whatever runs between steps, and the messages if it cannot be
// captured or hangs.
#include "runtime/common/arena_access.h"
#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/step_graph.h"
#include "tests/emulated/interleaving.h"
#include "tests/emulated/members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>

namespace fsdpc::rt {
namespace {

using emulated::Interleaved;

/// Written like an emitted program: a gather that the previous step has started, a sum on the other channel, a new
/// shard, and the next step's gather.
struct SmallStep {
  explicit SmallStep(Member &m) : m(m), memory(m.context) {
    createEvents(m.context, events);
    m.set(0, {static_cast<float>(1 + m.context.rank)});
    m.set(32, {0, 0});
    joinStreams(m.context);
  }
  ~SmallStep() {
    for (const Event &event : events)
      cudaEventDestroy(event.handle);
  }

  template <class Body>
  void compute(const Body &body) {
    emulated::Device::instance().enqueue(*m.device.compute, {body});
  }

  void call() {
    Context &c = m.context;
    if (tickets[0].sequence == 0)
      tickets[0] = allGatherStart(c, 0, Member::place(0), m.at(16), sizeof(float));
    wait(c, tickets[0]);
    compute([at = m.at(0)] {
      at[32] += at[16] + 2 * at[17];
      at[33] += 3 * at[16] - at[17];
    });
    record(c, events[0]);
    await(c, Channel::reduce, events[0]);
    tickets[1] = reduceScatterStart(c, 1, Member::place(32), m.at(40), 1, DType::f32);
    wait(c, tickets[1]);
    memory.fetch(Member::place(40), sizeof(float));
    compute([at = m.at(0)] {
      at[0] = at[40] / 4;
      at[40] = -1;
    });
    record(c, events[1]);
    await(c, Channel::comm, events[1]);
    tickets[0] = allGatherStart(c, 0, Member::place(0), m.at(16), sizeof(float));
  }

  /// Reuses the memory of the gather, as an evaluation does.
  void evaluate() {
    discard(m.context, tickets[0]);
    joinStreams(m.context);
    m.set(16, {-7, -7});
    joinStreams(m.context);
  }

  float fetched() {
    float value = 0;
    std::memcpy(&value, memory.fetched(), sizeof value);
    return value;
  }

  Member &m;
  StagedMemory memory;
  Event events[2];
  Ticket tickets[2];
};

/// What six steps fetch; an 'r' in `plan` is a replay, and 'e' is an evaluation.
std::vector<float> fetchedBy(Member &m, const std::string &plan) {
  SmallStep step(m);
  StepGraph graph(m.context);
  std::vector<float> fetched;
  for (const char what : plan) {
    if (what == 'e') {
      step.evaluate();
      continue;
    }
    if (what == 'c') {
      joinStreams(m.context);
      step.call();
    } else {
      if (!graph.exists()) {
        EXPECT_EQ(graph.capture([&] { step.call(); }), std::nullopt);
      }
      returnChannels(m.context);
      graph.launch();
    }
    fetched.push_back(step.fetched());
  }
  joinStreams(m.context);
  synchronizeCompute(m.device);
  return fetched;
}

TEST(StepGraph, ReplayedStepsFetchWhatCalledOnesDo) {
  for (unsigned seed = 0; seed < 32; ++seed) {
    const Interleaved interleaved(seed);
    runMembers(2, [&](Member &m) {
      const std::vector<float> called = fetchedBy(m, "cccccc");
      ASSERT_EQ(called.size(), 6u);
      ASSERT_NE(called[4], called[5]);
      ASSERT_EQ(fetchedBy(m, "crrrrr"), called) << seed;
      ASSERT_EQ(fetchedBy(m, "ccrecrr"), called) << seed; // a step after an evaluation is called
      ASSERT_EQ(fetchedBy(m, "crecrecr"), called) << seed;
      ASSERT_EQ(fetchedBy(m, "crcrcr"), called) << seed;
    });
  }
}

TEST(StepGraph, AnEvaluationMarksTheNextStep) {
  const Interleaved interleaved(0);
  runMembers(2, [&](Member &m) {
    SmallStep step(m);
    step.call();
    EXPECT_FALSE(m.device.leftoversDiscarded);
    step.evaluate();
    EXPECT_TRUE(m.device.leftoversDiscarded);
    synchronizeCompute(m.device);
  });
}

TEST(StepGraph, ACaptureRunsNothing) {
  const Interleaved interleaved(0);
  runMembers(2, [&](Member &m) {
    SmallStep step(m);
    step.call();
    const float before = step.fetched();
    StepGraph graph(m.context);
    EXPECT_EQ(graph.capture([&] { step.call(); }), std::nullopt);
    EXPECT_GT(graph.nodes(), 5);
    synchronizeCompute(m.device);
    EXPECT_EQ(step.fetched(), before);
  });
}

TEST(StepGraph, AStepThatCannotBeCapturedSaysWhyAndCanBeCalled) {
  for (unsigned seed = 0; seed < 16; ++seed) {
    const Interleaved interleaved(seed);
    runMembers(2, [&](Member &m) {
      const std::vector<float> called = fetchedBy(m, "cc");
      SmallStep step(m);
      step.call();
      StepGraph graph(m.context);
      const std::optional<std::string> why = graph.capture([&] {
        step.call();
        synchronizeCompute(m.device);
      });
      ASSERT_TRUE(why);
      EXPECT_THAT(*why, testing::HasSubstr("last recorded in a capturing stream"));
      EXPECT_FALSE(graph.exists());
      step.call();
      ASSERT_EQ(step.fetched(), called[1]) << seed;
      joinStreams(m.context);
      synchronizeCompute(m.device);
    });
  }
}

/// Rank 1 is too late for a replay in which `calls` steps were captured. Checks rank 0's message, and which of the
/// collectives it started the message names.
void expectTimeout(int calls, const std::string &operation, std::uint64_t startsBehind) {
  const Interleaved interleaved(0);
  std::latch captured(2), told(1);
  runMembers(2, [&](Member &m) {
    SmallStep step(m);
    step.call();
    StepGraph graph(m.context);
    const auto captureAll = [&] {
      for (int i = 0; i < calls; ++i)
        step.call();
    };
    ASSERT_EQ(graph.capture(captureAll), std::nullopt);
    joinStreams(m.context);
    synchronizeCompute(m.device);
    captured.arrive_and_wait();
    if (m.context.rank == 1)
      told.wait();
    graph.launch();
    if (m.context.rank == 0) {
      m.device.timeoutSeconds = 0.05;
      try {
        step.fetched();
        ADD_FAILURE() << "it ended";
      } catch (const Failure &failure) {
        EXPECT_EQ(failure.code, ExitCode::timeout);
        EXPECT_EQ(failure.details,
                  "unit=layers.0 seq=" + std::to_string(m.device.sequence - startsBehind) + " op=" + operation);
      }
      m.device.timeoutSeconds = 100;
      told.count_down();
    }
    synchronizeCompute(m.device);
  });
}

TEST(StepGraph, AReplayThatHangsNamesTheCollective) { expectTimeout(1, "reduce_scatter", 1); }

TEST(StepGraph, OfACollectiveThatAReplayStartsTwiceTheFirstIsNamed) { expectTimeout(2, "reduce_scatter", 3); }

TEST(StepGraph, EachMicroStepOfAReplayHasItsOwnBatch) {
  for (unsigned seed = 0; seed < 16; ++seed) {
    const Interleaved interleaved(seed);
    runMembers(1, [&](Member &m) {
      StagedMemory memory(m.context);
      m.context.memory = &memory;
      m.set(0, {0, 0});
      const auto keep = [&](float batch) {
        memory.keepBatch([&] {
          writeArena(m.context, Member::place(0), sizeof batch,
                     [&](std::byte *to) { std::memcpy(to, &batch, sizeof batch); });
        });
      };
      const auto step = [&] {
        for (int microStep = 0; microStep < 2; ++microStep) {
          memory.copyBatch();
          emulated::Device::instance().enqueue(*m.device.compute, {[at = m.at(0)] { at[1] = 10 * at[1] + at[0]; }});
        }
      };
      StepGraph graph(m.context);
      for (float batch = 1; batch <= 5; batch += 2) {
        memory.rewind();
        keep(batch);
        keep(batch + 1);
        memory.rewind();
        if (!graph.exists()) {
          ASSERT_EQ(graph.capture(step), std::nullopt);
        }
        graph.launch();
      }
      ASSERT_EQ(m.read(1, 1)[0], 123456) << seed;
    });
  }
}

} // namespace
} // namespace fsdpc::rt
