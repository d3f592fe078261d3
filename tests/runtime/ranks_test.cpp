// Real processes: tests/steps.py runs these suites alone and under mpirun with 2, 3 and 4 ranks.
#include "runtime/cpu/collectives.h"
#include "runtime/cpu/cpu_context.h"
#include "runtime/cpu/mpi_communicator.h"
#include "runtime/cpu/mpi_platform.h"
#include "runtime/cpu/mpi_window.h"
#include "tests/runtime/group_program.h"
#include "tests/runtime/mpi_world.h"
#include "tests/runtime/thread_ranks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <numeric>

namespace fsdpc::rt::test {
namespace {

const Stream::Mode bothModes[] = {Stream::Mode::inlined, Stream::Mode::threads};
constexpr std::int64_t shard = 1237;

struct Results {
  std::vector<float> gathered, reduced, all;
  bool operator==(const Results &) const = default;
};

/// A few rounds of every collective through the public functions; operands at the start of the window.
Results runCollectives(Context &context) {
  const std::int64_t whole = shard * context.worldSize;
  const Place operand{Space::window, 0};
  auto *values = context.at<float>(operand);
  Results results{std::vector<float>(whole), std::vector<float>(shard), std::vector<float>(whole)};
  std::vector<float> staging(whole * context.worldSize);
  for (int round = 0; round < 3; ++round) {
    for (std::int64_t i = 0; i < whole; ++i)
      values[i] = contribution(context.rank, i);
    const Ticket gather = allGatherStart(context, 0, operand, results.gathered.data(), shard * sizeof(float));
    const Ticket scatter =
        reduceScatterStart(context, 1, operand, results.reduced.data(), shard, DType::f32, staging.data());
    wait(context, gather);
    wait(context, scatter);
    wait(context, allReduceStart(context, 2, operand, results.all.data(), whole, DType::f32, staging.data()));
    std::fill_n(values, whole, -1.0f);
  }
  return results;
}

Results expectedResults(int rank, int ranks) {
  Results expected;
  for (int peer = 0; peer < ranks; ++peer)
    for (std::int64_t i = 0; i < shard; ++i)
      expected.gathered.push_back(contribution(peer, i));
  for (std::int64_t i = 0; i < shard * ranks; ++i)
    expected.all.push_back(expectedSum(ranks, i));
  expected.reduced.assign(expected.all.begin() + rank * shard, expected.all.begin() + (rank + 1) * shard);
  return expected;
}

/// `own` outlives the context.
Context contextFor(CpuContext &own, Communicator &communicator, Stream &stream, std::byte *window) {
  Context context;
  context.rank = communicator.rank();
  context.worldSize = communicator.worldSize();
  context.windowArena = window;
  own.communicator = &communicator;
  own.commStream = &stream;
  context.target = &own;
  return context;
}

std::int64_t windowBytesFor(int ranks) { return (shard * ranks * 4 + 4095) / 4096 * 4096; }

TEST(RanksTransports, PlainMpiAndSharedWindowsGiveTheSameBits) {
  const Platform &world = platform();
  const Results expected = expectedResults(world.rank(), world.worldSize());
  CommunicatorOptions options;
  options.oversubscribed = true;
  for (Stream::Mode mode : bothModes) {
    const auto stream = std::make_unique<Stream>(mode, true);
    SharedWindows windows = openSharedWindows(MPI_COMM_WORLD, windowBytesFor(world.worldSize()));
    SharedCommunicator shared(world.rank(), windows.controlBlock(), windows.addresses(), options);
    CpuContext own;
    Context sharedContext = contextFor(own, shared, *stream, windows.own.data());
    EXPECT_TRUE(runCollectives(sharedContext) == expected);
    // Also in pieces that do not divide the block.
    for (std::int64_t pieceBytes : {MpiCommunicator::defaultPieceBytes, std::int64_t{1000}}) {
      MpiCommunicator plain(MPI_COMM_WORLD, options, pieceBytes);
      CpuContext plainOwn;
      Context plainContext = contextFor(plainOwn, plain, *stream, windows.own.data());
      EXPECT_TRUE(runCollectives(plainContext) == expected) << pieceBytes;
    }
    platform().barrier();
  }
}

/// `program` on this rank through `communicator`, delayed at random.
void runGroups(GroupProgram &program, Communicator &communicator, Stream::Mode mode, std::byte *window) {
  const auto commStream = std::make_unique<Stream>(mode, true);
  const auto reduceStream = std::make_unique<Stream>(mode, true);
  CpuContext own;
  Context context = contextFor(own, communicator, *commStream, window);
  own.reduceStream = reduceStream.get();
  RandomPause pause(static_cast<unsigned>(mode), context.rank);
  program.run(context, static_cast<unsigned>(context.worldSize), 3, pause);
  platform().barrier();
}

TEST(RanksGroups, GetTheirOwnResultsOnBothTransports) {
  const Platform &world = platform();
  for (bool ownReduce : {false, true}) {
    GroupProgram program(world.worldSize(), ownReduce);
    CommunicatorOptions options;
    options.oversubscribed = true;
    options.axes = program.axes;
    options.collectives = program.infos;
    options.whenBegun = [&](std::uint64_t sequence) { RandomPause(static_cast<unsigned>(sequence), world.rank())(); };
    SharedWindows windows = openSharedWindows(MPI_COMM_WORLD, (program.windowBytes() + 4095) / 4096 * 4096);
    for (Stream::Mode mode : bothModes) {
      // A control block serves one communicator, because its counters continue.
      SharedWindows counters = openSharedWindows(MPI_COMM_WORLD, 4096);
      SharedCommunicator shared(world.rank(), counters.controlBlock(), windows.addresses(), options);
      runGroups(program, shared, mode, windows.own.data());
      MpiCommunicator plain(MPI_COMM_WORLD, options);
      runGroups(program, plain, mode, windows.own.data());
    }
  }
}

TEST(RanksTransports, WindowsInADirectoryWorkToo) {
  const Platform &world = platform();
  setenv("FSDPC_WINDOW_DIRECTORY", testing::TempDir().c_str(), 1);
  SharedWindows windows = openSharedWindows(MPI_COMM_WORLD, 4096);
  unsetenv("FSDPC_WINDOW_DIRECTORY");
  windows.own.data()[4095] = static_cast<std::byte>(world.rank() + 1);
  platform().barrier();
  for (int peer = 0; peer < world.worldSize(); ++peer)
    EXPECT_EQ(windows.addresses()[peer][4095], static_cast<std::byte>(peer + 1));
  platform().barrier();
}

TEST(RanksTransports, AStoreWithoutRoomFailsOnEveryRank) {
  setenv("FSDPC_WINDOW_DIRECTORY", "/proc/no/such/place", 1);
  try {
    openSharedWindows(MPI_COMM_WORLD, 4096);
    ADD_FAILURE() << "no failure";
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, ExitCode::memory);
    EXPECT_TRUE(failure.everyRank);
  }
  unsetenv("FSDPC_WINDOW_DIRECTORY");
}

TEST(RanksTransports, AFailureOfOneRankIsThrownOnAll) {
  const Platform &world = platform();
  try {
    attemptTogether(MPI_COMM_WORLD, [&] {
      if (world.rank() == world.worldSize() - 1)
        throw Failure(ExitCode::device, "only here");
    });
    ADD_FAILURE() << "no failure";
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, ExitCode::device);
    EXPECT_STREQ(failure.what(), "only here");
  }
}

TEST(RanksTransports, ATimeOutOnPlainMpiNamesTheMissingRank) {
  const Platform &world = platform();
  if (world.worldSize() == 1)
    GTEST_SKIP() << "nobody can be missing";
  CommunicatorOptions options;
  options.oversubscribed = true;
  options.timeoutSeconds = 0.3;
  options.graceSeconds = 0.3;
  std::vector<std::byte> window(64);
  // The operations that time out stay in MPI forever. A separate communicator isolates them from others.
  MpiCommunicator &plain = *new MpiCommunicator(MPI_COMM_WORLD, options);
  const auto stream = std::make_unique<Stream>(Stream::Mode::inlined, true);
  CpuContext own;
  Context context = contextFor(own, plain, *stream, window.data());
  if (world.rank() != 0) {
    float sum;
    std::vector<float> staging(world.worldSize());
    try {
      wait(context, allReduceStart(context, 0, {Space::window, 0}, &sum, 1, DType::f32, staging.data()));
      ADD_FAILURE() << "no time-out";
    } catch (const Failure &failure) {
      EXPECT_EQ(failure.code, ExitCode::timeout);
      EXPECT_EQ(failure.details, "seq=1 op=all_reduce missing=0");
    }
  }
  platform().barrier();
}

TEST(RanksTransports, OnPlainMpiRanksThatComeToDifferentCollectivesSaySo) {
  const Platform &world = platform();
  CommunicatorOptions options;
  options.oversubscribed = true;
  MpiCommunicator plain(MPI_COMM_WORLD, options);
  const auto stream = std::make_unique<Stream>(Stream::Mode::inlined, true);
  std::vector<std::byte> window(64);
  CpuContext own;
  Context context = contextFor(own, plain, *stream, window.data());
  std::vector<std::byte> all(static_cast<std::size_t>(4 * world.worldSize()));
  try {
    const int collective = world.rank() == world.worldSize() - 1 ? 3 : 5;
    wait(context, allGatherStart(context, collective, {Space::window, 0}, all.data(), 4));
    EXPECT_EQ(world.worldSize(), 1) << "went on";
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, ExitCode::disagreement);
    const int other = world.rank() == world.worldSize() - 1 ? 0 : world.worldSize() - 1;
    EXPECT_EQ(failure.details, "seq=1 op=all_gather other=" + std::to_string(other) + " other_op=another_collective");
  }
  platform().barrier();
}

TEST(RanksPlatform, ExchangesSmallHostData) {
  Platform &world = platform();
  const int ranks = world.worldSize();
  EXPECT_EQ(world.maxOverRanks(world.rank()), ranks - 1);
  EXPECT_EQ(world.sumOverRanks(world.rank() + 1), ranks * (ranks + 1) / 2);
  std::int64_t value = world.rank() == 0 ? 42 : 0;
  world.broadcast(&value, sizeof value);
  EXPECT_EQ(value, 42);
  const std::int64_t mine[2] = {world.rank(), 10 * world.rank()};
  std::vector<std::int64_t> all(world.rank() == 0 ? 2 * ranks : 0);
  world.gatherToRoot(mine, sizeof mine, all.empty() ? nullptr : all.data());
  for (int rank = 0; rank < static_cast<int>(all.size()) / 2; ++rank)
    EXPECT_EQ(all[2 * rank + 1], 10 * rank);
}

TEST(RanksPlatform, OpensWhatTheProgramPlanned) {
  Platform &world = platform();
  static const ArenaInfo arenas[] = {{Space::privateSpace, 8192, 8000}, {Space::window, 0, 0}};
  static ArenaInfo planned[2];
  std::copy_n(arenas, 2, planned);
  planned[1].bytes = windowBytesFor(world.worldSize());
  planned[1].usedBytes = shard * world.worldSize() * 4;
  static ProgramInfo program{};
  program.worldSize = world.worldSize();
  program.arenas = planned;
  PlatformOptions options;
  options.threads = 1;
  Context &context = world.openArenas(program, options);
  EXPECT_EQ(world.mappedArenaBytes(), 8192 + planned[1].bytes);
  EXPECT_EQ(context.threads, 1);
  EXPECT_EQ(context.rank, world.rank());
  EXPECT_TRUE(runCollectives(context) == expectedResults(world.rank(), world.worldSize()));
  const CommunicationTimes times = *world.takeCommunicationTimes();
  EXPECT_GT(times.communicationMicroseconds, 0);
  EXPECT_EQ(world.takeCommunicationTimes()->communicationMicroseconds, 0);
  const std::int64_t growth = static_cast<MpiPlatform &>(world).proportionalSetGrowthBytes();
  EXPECT_GT(world.sumOverRanks(growth), 0);
  if (growth < 0)
    return;
  // Memory outside the arenas is counted. Other ranks that begin to use the same pages take over a share.
  const std::int64_t before = world.outsidePlan().bytes;
  EXPECT_GT(before, 0);
  const std::vector<char> held(std::size_t{64} << 20, 'x');
  EXPECT_GE(world.outsidePlan().bytes - before, std::int64_t{60} << 20) << held[0];
}

} // namespace
} // namespace fsdpc::rt::test
