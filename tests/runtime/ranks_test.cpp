// Real processes: tests/steps.py runs these suites alone and under mpirun with 2, 3 and 4 ranks.
#include "runtime/cpu/collectives.h"
#include "runtime/cpu/cpu_context.h"
#include "runtime/cpu/hosts_communicator.h"
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
  for (int round = 0; round < 3; ++round) {
    for (std::int64_t i = 0; i < whole; ++i)
      values[i] = contribution(context.rank, i);
    const Ticket gather = allGatherStart(context, 0, operand, results.gathered.data(), shard * sizeof(float));
    const Ticket scatter = reduceScatterStart(context, 1, operand, results.reduced.data(), shard, DType::f32);
    wait(context, gather);
    wait(context, scatter);
    wait(context, allReduceStart(context, 2, operand, results.all.data(), whole, DType::f32));
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

/// Ways to spread the ranks over hosts: the host of each rank.
std::vector<std::vector<int>> placements(int ranks) {
  std::vector<std::vector<int>> result(5);
  for (int rank = 0; rank < ranks; ++rank) {
    result[0].push_back(rank);              // everyone alone
    result[1].push_back(rank / 2);          // pairs
    result[2].push_back(rank % 2);          // in turn
    result[3].push_back(rank == 0 ? 0 : 1); // the first alone
    result[4].push_back(rank == ranks - 1); // the last alone
  }
  return result;
}

/// The memory of a rank whose peers live on these hosts. Links of 4 KiB make transfers take several rounds.
HostMemory memoryOn(const std::vector<int> &hosts, SharedWindows &windows, SharedWindows &links) {
  const int rank = platform().rank();
  HostMemory memory;
  memory.hostOfRank = hosts;
  memory.control = &windows.controlBlock();
  memory.windows = windows.addresses();
  memory.links = links.addresses();
  memory.ownLink = links.own.data();
  memory.linkBytes = links.own.bytes();
  for (std::size_t peer = 0; peer < hosts.size(); ++peer)
    if (hosts[peer] != hosts[static_cast<std::size_t>(rank)])
      memory.windows[peer] = memory.links[peer] = nullptr;
  return memory;
}

SharedWindows openWindows(std::int64_t bytes) {
  return openSharedWindows(MPI_COMM_WORLD, (bytes + 4095) / 4096 * 4096, platform().worldSize());
}

TEST(RanksTransports, GiveTheSameBitsWhereverRanksLive) {
  const Platform &world = platform();
  const Results expected = expectedResults(world.rank(), world.worldSize());
  CommunicatorOptions options;
  options.oversubscribed = true;
  for (Stream::Mode mode : bothModes) {
    const auto stream = std::make_unique<Stream>(mode, true);
    SharedWindows windows = openWindows(windowBytesFor(world.worldSize()));
    SharedCommunicator shared(world.rank(), windows.controlBlock(), windows.addresses(), options);
    CpuContext own;
    Context sharedContext = contextFor(own, shared, *stream, windows.own.data());
    EXPECT_TRUE(runCollectives(sharedContext) == expected);
    for (const std::vector<int> &hosts : placements(world.worldSize()))
      for (const std::int64_t linkBytes : {4096, 1 << 20}) {
        SharedWindows memory = openWindows(windowBytesFor(world.worldSize())), links = openWindows(linkBytes);
        HostsCommunicator between(MPI_COMM_WORLD, memoryOn(hosts, memory, links), options);
        CpuContext betweenOwn;
        Context context = contextFor(betweenOwn, between, *stream, memory.own.data());
        EXPECT_TRUE(runCollectives(context) == expected) << testing::PrintToString(hosts) << linkBytes;
        platform().barrier();
      }
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

TEST(RanksGroups, GetTheirOwnResultsWhereverRanksLive) {
  const Platform &world = platform();
  for (bool ownReduce : {false, true}) {
    GroupProgram program(world.worldSize(), ownReduce);
    CommunicatorOptions options;
    options.oversubscribed = true;
    options.axes = program.axes;
    options.collectives = program.infos;
    options.whenBegun = [&](std::uint64_t sequence) { RandomPause(static_cast<unsigned>(sequence), world.rank())(); };
    for (Stream::Mode mode : bothModes) {
      // A control block serves one communicator, because its counters continue.
      SharedWindows windows = openWindows(program.windowBytes());
      SharedCommunicator shared(world.rank(), windows.controlBlock(), windows.addresses(), options);
      runGroups(program, shared, mode, windows.own.data());
      for (const std::vector<int> &hosts : placements(world.worldSize())) {
        SharedWindows memory = openWindows(program.windowBytes()), links = openWindows(4096);
        HostsCommunicator between(MPI_COMM_WORLD, memoryOn(hosts, memory, links), options);
        runGroups(program, between, mode, memory.own.data());
      }
    }
  }
}

TEST(RanksTransports, RefuseALinkThatIsTooSmallForThePlacement) {
  const int ranks = platform().worldSize();
  SharedWindows windows = openWindows(4096), links = openWindows(4096);
  HostMemory memory = memoryOn(placements(ranks)[0], windows, links);
  memory.linkBytes = 256;
  try {
    HostsCommunicator(MPI_COMM_WORLD, std::move(memory), {});
    EXPECT_EQ(ranks, 1) << "no failure"; // one rank needs no link
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, ExitCode::incompatible);
    EXPECT_GT(ranks, 1);
  }
}

TEST(RanksTransports, WindowsInADirectoryWorkToo) {
  const Platform &world = platform();
  setenv("FSDPC_WINDOW_DIRECTORY", testing::TempDir().c_str(), 1);
  SharedWindows windows = openSharedWindows(MPI_COMM_WORLD, 4096, 1);
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
    openSharedWindows(MPI_COMM_WORLD, 4096, 1);
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

TEST(RanksTransports, ATimeOutBetweenHostsNamesTheMissingRank) {
  const Platform &world = platform();
  if (world.worldSize() == 1)
    GTEST_SKIP() << "nobody can be missing";
  CommunicatorOptions options;
  options.oversubscribed = true;
  options.timeoutSeconds = 0.3;
  options.graceSeconds = 0.3;
  // The operations that time out stay in MPI forever. A separate communicator isolates them from others.
  auto &windows = *new SharedWindows(openWindows(4096)), &links = *new SharedWindows(openWindows(4096));
  for (const std::vector<int> &hosts : placements(world.worldSize())) {
    if (std::count(hosts.begin(), hosts.end(), hosts[0]) == world.worldSize())
      continue;
    auto &counters = *new SharedWindows(openWindows(4096));
    HostMemory memory = memoryOn(hosts, windows, links);
    memory.control = &counters.controlBlock();
    auto &between = *new HostsCommunicator(MPI_COMM_WORLD, std::move(memory), options);
    const auto stream = std::make_unique<Stream>(Stream::Mode::inlined, true);
    CpuContext own;
    Context context = contextFor(own, between, *stream, windows.own.data());
    if (world.rank() != 0) {
      float sum;
      try {
        wait(context, allReduceStart(context, 0, {Space::window, 0}, &sum, 1, DType::f32));
        ADD_FAILURE() << "no time-out";
      } catch (const Failure &failure) {
        EXPECT_EQ(failure.code, ExitCode::timeout);
        EXPECT_EQ(failure.details, "seq=1 op=all_reduce missing=0") << testing::PrintToString(hosts);
      }
    }
    platform().barrier();
  }
}

TEST(RanksTransports, RanksOfSeveralHostsThatComeToDifferentCollectivesSaySo) {
  const Platform &world = platform();
  const int last = world.worldSize() - 1;
  CommunicatorOptions options;
  options.oversubscribed = true;
  SharedWindows windows = openWindows(4096), links = openWindows(4096);
  HostsCommunicator between(MPI_COMM_WORLD, memoryOn(placements(world.worldSize())[0], windows, links), options);
  const auto stream = std::make_unique<Stream>(Stream::Mode::inlined, true);
  CpuContext own;
  Context context = contextFor(own, between, *stream, windows.own.data());
  std::vector<std::byte> all(static_cast<std::size_t>(4 * world.worldSize()));
  try {
    wait(context, allGatherStart(context, world.rank() == last ? 3 : 5, {Space::window, 0}, all.data(), 4));
    EXPECT_EQ(world.worldSize(), 1) << "went on";
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, ExitCode::disagreement);
    EXPECT_EQ(failure.details, "seq=1 op=all_gather other=" + std::to_string(world.rank() == last ? 0 : last) +
                                   " other_op=another_collective");
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
