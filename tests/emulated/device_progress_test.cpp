// How the host sees the device's progress: a long step continues, and one that hangs ends with the collective and the
// rank that it waits for.
#include "runtime/cuda/section_ranges.h"
#include "tests/emulated/interleaving.h"
#include "tests/emulated/members.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <latch>

namespace fsdpc::rt {
namespace {

using emulated::Interleaved;

constexpr SectionInfo sections[] = {{"micro_step", "layers.0", "forward", 0, -1, 0}};
/// Progress is more frequent than the limit, and all of it together takes longer.
constexpr double limitSeconds = 1.5;
constexpr std::chrono::milliseconds pace{250};
constexpr int parts = 9;
/// For runs that should time out.
constexpr double shortSeconds = 0.2;

/// Work on a stream that lasts until it is released.
class Gate {
public:
  void enterOn(cudaStream_t stream) { come(stream, 0); }
  void release() {
    cudaStream_t mine = nullptr;
    cudaStreamCreateWithPriority(&mine, cudaStreamNonBlocking, 0);
    come(mine, 1);
    cudaStreamSynchronize(mine);
    cudaStreamDestroy(mine);
  }

private:
  void come(cudaStream_t stream, std::size_t side) {
    emulated::Device::instance().enqueue(*stream, {.join = [meeting = meeting, side](emulated::Stream &joining) {
      meeting->streams[side] = &joining;
      return meeting;
    }});
  }
  std::shared_ptr<emulated::Meeting> meeting = std::make_shared<emulated::Meeting>(
      emulated::Meeting{.streams = std::vector<emulated::Stream *>(2), .run = [] {}});
};

/// The page of two ranks that are never stopped.
struct Page {
  struct alignas(128) Line {
    std::byte bytes[128] = {};
  };
  std::vector<Line> memory = std::vector<Line>(HeartbeatPage::bytesFor(2) / sizeof(Line) + 1);
  void attach(Member &m) {
    HeartbeatPage &page = *HeartbeatPage::at(memory.data());
    m.pulse.attach(page, m.context.rank, 2);
    page.of(m.context.rank).aliveNanoseconds = monotonicNanoseconds() + (std::int64_t{1} << 40);
  }
};

Failure failureOf(Member &m) {
  m.device.timeoutSeconds = shortSeconds;
  try {
    synchronizeCompute(m.device);
  } catch (const Failure &failure) {
    m.device.timeoutSeconds = 100;
    return failure;
  }
  return Failure(ExitCode::internal, "it ended");
}

TEST(DeviceProgress, AStepWhoseCollectivesEndGoesOnBeyondTheLimit) {
  const Interleaved interleaved(0);
  runMembers(2, [](Member &m) {
    m.device.timeoutSeconds = limitSeconds;
    for (int i = 0; i < parts; ++i) {
      if (m.context.rank == 1)
        std::this_thread::sleep_for(pace);
      wait(m.context, allGatherStart(m.context, 0, Member::place(0), m.at(16), sizeof(float)));
      if (i % 4 == 3)
        joinStreams(m.context);
    }
    EXPECT_NO_THROW(synchronizeCompute(m.device));
  });
}

TEST(DeviceProgress, AStepThatComputesSectionBySectionGoesOnBeyondTheLimit) {
  const Interleaved interleaved(0);
  runMembers(1, [](Member &m) {
    m.program.sections = sections;
    SectionRanges ranges(m.program, m.device);
    m.context.observer = &ranges;
    m.device.timeoutSeconds = limitSeconds;
    std::vector<Gate> gates(parts);
    for (Gate &gate : gates)
      runSection(m.context, 0, +[](Context &c, Gate *const &work) { work->enterOn(deviceOf(c).compute); }, &gate);
    std::thread device([&] {
      for (Gate &gate : gates) {
        std::this_thread::sleep_for(pace);
        gate.release();
      }
    });
    EXPECT_NO_THROW(synchronizeCompute(m.device));
    device.join();
  });
}

TEST(DeviceProgress, ARankThatNeverStartsACollectiveIsNamed) {
  const Interleaved interleaved(0);
  Page page;
  std::latch told(1);
  runMembers(2, [&](Member &m) {
    page.attach(m);
    const auto begin = [&] {
      wait(m.context, reduceScatterStart(m.context, 1, Member::place(0), m.at(16), 2, DType::f32));
    };
    if (m.context.rank == 0) {
      begin();
      EXPECT_EQ(failureOf(m).details, "unit=layers.0 seq=1 op=reduce_scatter missing=1");
      told.count_down();
    } else {
      told.wait();
      begin();
    }
    synchronizeCompute(m.device);
    m.pulse.detach();
  });
}

TEST(DeviceProgress, ARankWhoseDeviceDoesNotComeToACollectiveThatItsHostHasStartedIsNamed) {
  const Interleaved interleaved(0);
  Page page;
  std::latch started(2), told(1);
  runMembers(2, [&](Member &m) {
    page.attach(m);
    Event computed[1];
    createEvents(m.context, computed);
    Gate gate;
    if (m.context.rank == 1)
      gate.enterOn(m.device.compute);
    record(m.context, computed[0]);
    await(m.context, Channel::comm, computed[0]);
    wait(m.context, allGatherStart(m.context, 0, Member::place(0), m.at(16), sizeof(float)));
    m.progress->look();
    started.arrive_and_wait();
    if (m.context.rank == 0) {
      const Failure failure = failureOf(m);
      EXPECT_EQ(failure.details, "unit=layers.0 seq=1 op=all_gather missing=1");
      EXPECT_STREQ(failure.what(), "rank 1 did not join within 0.2 s: all_gather of layers.0, collective 1 of the run");
      told.count_down();
    } else {
      told.wait();
      gate.release();
    }
    synchronizeCompute(m.device);
    cudaEventDestroy(computed[0].handle);
    m.pulse.detach();
  });
}

TEST(DeviceProgress, ACollectiveThatNeverEndsIsNamedAndNoRankIsBlamed) {
  const Interleaved interleaved(0);
  Page page;
  std::latch started(2), told(2);
  ::setenv("FSDPC_EMULATED_STALLED", "2", 1);
  runMembers(2, [&](Member &m) {
    page.attach(m);
    for (int i = 0; i < 2; ++i)
      wait(m.context, allGatherStart(m.context, 0, Member::place(0), m.at(16), sizeof(float)));
    m.progress->look();
    started.arrive_and_wait();
    const Failure failure = failureOf(m);
    EXPECT_EQ(failure.details, "unit=layers.0 seq=2 op=all_gather");
    const auto first = m.pulse.trace().at(1), second = m.pulse.trace().at(2);
    ASSERT_TRUE(first && second);
    EXPECT_STREQ(first->state(), "done");
    EXPECT_STREQ(second->state(), "begun");
    told.arrive_and_wait();
    m.pulse.detach();
  });
  ::unsetenv("FSDPC_EMULATED_STALLED");
}

} // namespace
} // namespace fsdpc::rt
