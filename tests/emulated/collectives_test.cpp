// The runtime's collectives on the emulated device: starts, waits, groups, in every order of the streams.
#include "runtime/cuda/collectives.h"
#include "tests/emulated/interleaving.h"
#include "tests/emulated/members.h"

#include <gtest/gtest.h>

namespace fsdpc::rt {

namespace {
// The collectives of the program that all tests share (members.h).
constexpr CollectiveInfo collectives[] = {
    {"all_gather", "layers.0", "g0", 0, -1, Channel::comm},
    {"reduce_scatter", "layers.0", "r0", 0, -1, Channel::reduce},
    {"all_reduce", "", "a0", 0, 0, Channel::comm},
    {"all_reduce", "layers.1", "a1", 0, 1, Channel::reduce},
};
} // namespace

std::span<const CollectiveInfo> programCollectives() { return collectives; }

namespace {

using emulated::Interleaved, emulated::Rank;

std::vector<float> powers(int rank) { return {static_cast<float>(1 << rank), static_cast<float>(16 << rank)}; }

// Offsets in the window: the collectives read at 0 and write at 16.

TEST(CudaCollectives, AGatherReadsWhatComputeWroteAndComputeReadsWhatItGathered) {
  for (unsigned seed = 0; seed < 16; ++seed) {
    const Interleaved interleaved(seed);
    runMembers(2, [&](Member &m) {
      Event filled[1];
      createEvents(m.context, filled);
      for (int step = 0; step < 4; ++step) {
        const float base = static_cast<float>(10 * step);
        m.set(0, {base + static_cast<float>(m.context.rank)});
        m.set(16, {-1, -1});
        record(m.context, filled[0]);
        await(m.context, Channel::comm, filled[0]);
        const Ticket ticket = allGatherStart(m.context, 0, Member::place(0), m.at(16), sizeof(float));
        wait(m.context, ticket);
        ASSERT_EQ(m.read(16, 2), (std::vector<float>{base, base + 1})) << seed;
      }
      cudaEventDestroy(filled[0].handle);
    });
  }
}

TEST(CudaCollectives, SumsGoToTheShareOrToAllOnChannelsOfTheirOwn) {
  for (unsigned seed = 0; seed < 16; ++seed) {
    const Interleaved interleaved(seed);
    runMembers(2, [&](Member &m) {
      const float own = static_cast<float>(1 + m.context.rank);
      m.set(0, {own, 10 * own, 100 * own, 1000 * own});
      joinStreams(m.context);
      const Ticket scattered = reduceScatterStart(m.context, 1, Member::place(0), m.at(16), 2, DType::f32);
      const Ticket reduced = allReduceStart(m.context, 2, Member::place(0), m.at(32), 4, DType::f32);
      EXPECT_LT(scattered.sequence, reduced.sequence);
      wait(m.context, reduced);
      EXPECT_EQ(m.read(32, 4), (std::vector<float>{3, 30, 300, 3000}));
      wait(m.context, scattered);
      EXPECT_EQ(m.read(16, 2), m.context.rank == 0 ? (std::vector<float>{3, 30}) : (std::vector<float>{300, 3000}));
    });
  }
}

TEST(CudaCollectives, GroupsOfAMeshAxisKeepToThemselves) {
  runMembers(4, [](Member &m) {
    m.set(0, powers(m.context.rank));
    joinStreams(m.context);
    wait(m.context, allReduceStart(m.context, 2, Member::place(0), m.at(16), 2, DType::f32));
    wait(m.context, allReduceStart(m.context, 3, Member::place(0), m.at(32), 2, DType::f32));
    const int rank = m.context.rank;
    const float neighbours = rank < 2 ? 1 + 2 : 4 + 8, apart = rank % 2 ? 2 + 8 : 1 + 4;
    EXPECT_EQ(m.read(16, 2), (std::vector<float>{neighbours, 16 * neighbours}));
    EXPECT_EQ(m.read(32, 2), (std::vector<float>{apart, 16 * apart}));
  });
}

TEST(CudaCollectives, AProgramWithoutAWindowHasCommunicatorsAllTheSame) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  emulated::runRanks(2, [&](const Rank &rank) {
    ProgramInfo program{};
    program.worldSize = rank.size;
    program.axes = axes;
    const NcclCommunicators communicators(program, rank.rank, id, nullptr, 0);
    EXPECT_NE(communicators.of(collectives[0]), nullptr);
    communicators.checkErrors();
  });
}

TEST(CudaCollectives, ADiscardedTicketIsWaitedForAndForgotten) {
  runMembers(2, [](Member &m) {
    m.set(0, powers(m.context.rank));
    joinStreams(m.context);
    Ticket never, ticket = allGatherStart(m.context, 0, Member::place(0), m.at(16), sizeof(float));
    discard(m.context, never);
    discard(m.context, ticket);
    EXPECT_EQ(ticket.sequence, 0u);
    EXPECT_EQ(m.read(16, 2), (std::vector<float>{1, 2}));
  });
}

TEST(CudaCollectives, ARankThatStartsOneAloneGetsATimeoutThatNamesIt) {
  const Interleaved interleaved(0);
  std::atomic<bool> failed = false;
  runMembers(2, [&](Member &m) {
    if (m.context.rank == 0) {
      m.device.timeoutSeconds = 0.05;
      const Ticket ticket = reduceScatterStart(m.context, 1, Member::place(0), m.at(16), 2, DType::f32);
      wait(m.context, ticket);
      try {
        synchronizeCompute(m.device);
        ADD_FAILURE() << "it ended";
      } catch (const Failure &failure) {
        EXPECT_EQ(failure.code, ExitCode::timeout);
        EXPECT_NE(std::string(failure.what()).find("reduce_scatter of layers.0, collective 1 of the run"),
                  std::string::npos);
        EXPECT_EQ(failure.details, "unit=layers.0 seq=1 op=reduce_scatter");
      }
      failed = true;
      failed.notify_all();
    } else {
      failed.wait(false);
      reduceScatterStart(m.context, 1, Member::place(0), m.at(16), 2, DType::f32);
    }
    joinStreams(m.context);
    m.device.timeoutSeconds = 100;
    synchronizeCompute(m.device);
  });
}

} // namespace
} // namespace fsdpc::rt
