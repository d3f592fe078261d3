// The threads of a block on the emulated device: barriers, shuffles, votes, shared memory, and misuse that ends the
// process.
#include "tests/emulated/block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <vector>

namespace fsdpc::emulated {
namespace {

int lane() { return static_cast<int>(threadIdx.x) % 32; }

// ---- barriers

TEST(EmulatedBlock, EveryThreadOfEveryBlockRunsOnceWithItsOwnIndices) {
  std::multiset<std::tuple<unsigned, unsigned, unsigned, unsigned, unsigned, unsigned>> seen;
  runBlocks({dim3(3, 2, 2), dim3(5, 4, 2)}, [&] {
    EXPECT_EQ(blockDim.x * 100 + blockDim.y * 10 + blockDim.z, 542u);
    EXPECT_EQ(gridDim.x * 100 + gridDim.y * 10 + gridDim.z, 322u);
    seen.insert({blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z});
  });
  EXPECT_EQ(seen.size(), 12u * 40);
  for (const auto &[bx, by, bz, x, y, z] : seen) {
    EXPECT_TRUE(bx < 3 && by < 2 && bz < 2 && x < 5 && y < 4 && z < 2);
    EXPECT_EQ(seen.count({bx, by, bz, x, y, z}), 1u);
  }
}

/// In every round, every thread adds the values of two others in shared memory, with or without a barrier between
/// reading and writing.
std::vector<int> mixThroughSharedMemory(int threads, bool withBarriers) {
  std::vector<int> shared(threads), mixed(threads);
  runBlocks({dim3(1), dim3(static_cast<unsigned>(threads))}, [&] {
    const int self = static_cast<int>(threadIdx.x);
    shared[self] = self;
    for (int round = 1; round <= 5; ++round) {
      if (withBarriers)
        __syncthreads();
      const int sum = shared[(self + 7 * round) % threads] + shared[(self + threads - round) % threads];
      if (withBarriers)
        __syncthreads();
      shared[self] = sum;
    }
    mixed[self] = shared[self];
  });
  return mixed;
}

std::vector<int> mixedByHand(int threads) {
  std::vector<int> numbers(threads), next(threads);
  for (int i = 0; i < threads; ++i)
    numbers[i] = i;
  for (int round = 1; round <= 5; ++round, numbers.swap(next))
    for (int i = 0; i < threads; ++i)
      next[i] = numbers[(i + 7 * round) % threads] + numbers[(i + threads - round) % threads];
  return numbers;
}

TEST(EmulatedBlock, BarriersKeepTheWarpsOfABlockTogether) {
  for (const int threads : {32, 96, 100, 1024})
    EXPECT_EQ(mixThroughSharedMemory(threads, true), mixedByHand(threads)) << threads;
}

TEST(EmulatedBlock, WithoutBarriersTheResultIsAnother) {
  EXPECT_NE(mixThroughSharedMemory(96, false), mixedByHand(96));
}

/// The number of blocks with a wrong result if a thread reads what its neighbour wrote without a barrier.
int blocksThatReadTooEarly(int distance) {
  int wrong = 0;
  for (int block = 0; block < 20; ++block) {
    int written[64] = {};
    bool tooEarly = false;
    runBlocks({dim3(1), dim3(64)}, [&] {
      const int self = static_cast<int>(threadIdx.x);
      written[self] = 1;
      tooEarly |= self + distance >= 0 && self + distance < 64 && written[self + distance] == 0;
    });
    wrong += tooEarly;
  }
  return wrong;
}

TEST(EmulatedBlock, AMissingBarrierShowsWhicheverNeighbourIsRead) {
  EXPECT_GT(blocksThatReadTooEarly(1), 0);
  EXPECT_GT(blocksThatReadTooEarly(-1), 0);
  EXPECT_GT(blocksThatReadTooEarly(-32), 0);
}

/// How often a warp finds another warp's vote of a later round: votes are overwritten without a barrier before, or with
/// one.
int votesOverwrittenTooEarly(bool withBarrier) {
  int wrong = 0;
  unsigned votes[3] = {};
  runBlocks({dim3(1), dim3(96)}, [&] {
    const unsigned warp = threadIdx.x / 32;
    for (unsigned round = 0; round < 20; ++round) {
      const unsigned vote = __ballot_sync(0xffffffffu, round % 2);
      if (withBarrier)
        __syncthreads(); // the previous round's votes may still be read
      if (lane() == 0)
        votes[warp] = vote;
      __syncthreads();
      wrong += votes[(warp + 1) % 3] != (round % 2 ? 0xffffffffu : 0u);
    }
  });
  return wrong;
}

TEST(EmulatedBlock, AWarpMayBeAheadOfOthersAsFarAsItsNextBarrier) {
  EXPECT_EQ(votesOverwrittenTooEarly(true), 0);
  EXPECT_GT(votesOverwrittenTooEarly(false), 0);
}

TEST(EmulatedBlock, BlocksRunInNoOrderThatAKernelCouldRelyOn) {
  int forwards = 0, backwards = 0;
  for (int launch = 0; launch < 20; ++launch) {
    std::vector<unsigned> order;
    runBlocks({dim3(4), dim3(1)}, [&] { order.push_back(blockIdx.x); });
    (std::is_sorted(order.begin(), order.end()) ? forwards : backwards) += 1;
  }
  EXPECT_GT(forwards, 0);
  EXPECT_GT(backwards, 0);
}

TEST(EmulatedBlock, SharedMemoryOfALaunchIsNotANumberInEveryBlock) {
  int numbers = 0;
  runBlocks({dim3(3), dim3(32), 32 * sizeof(float)}, [&] {
    float &mine = reinterpret_cast<float *>(dynamicSharedMemory)[threadIdx.x];
    numbers += !std::isnan(mine);
    mine = 1;
  });
  EXPECT_EQ(numbers, 0);
}

// ---- warps

TEST(EmulatedWarp, ShufflesBringTheValueOfTheLaneTheyName) {
  runBlocks({dim3(2), dim3(96)}, [] {
    const int self = static_cast<int>(threadIdx.x), first = self - lane();
    const double mine = self + 0.25;
    EXPECT_EQ(__shfl_sync(0xffffffffu, mine, (lane() * 5 + 3) % 32), first + (lane() * 5 + 3) % 32 + 0.25);
    EXPECT_EQ(__shfl_xor_sync(0xffffffffu, mine, 9), first + (lane() ^ 9) + 0.25);
    EXPECT_EQ(__shfl_down_sync(0xffffffffu, self, 3), lane() < 29 ? self + 3 : self);
    EXPECT_EQ(__shfl_up_sync(0xffffffffu, self, 3), lane() >= 3 ? self - 3 : self);
  });
}

TEST(EmulatedWarp, ManyShufflesInARowDoNotMixUpTheirValues) {
  runBlocks({dim3(1), dim3(64)}, [] {
    int value = static_cast<int>(threadIdx.x);
    for (int round = 0; round < 100; ++round)
      value = __shfl_sync(0xffffffffu, value, (lane() + 1) % 32);
    EXPECT_EQ(value, static_cast<int>(threadIdx.x) - lane() + (lane() + 100) % 32);
  });
}

TEST(EmulatedWarp, AVoteHasABitForEveryLane) {
  runBlocks({dim3(1), dim3(64)}, [] {
    const unsigned expected = threadIdx.x < 32 ? 0x55555555u : 0xff000000u;
    const bool mine = threadIdx.x < 32 ? lane() % 2 == 0 : lane() >= 24;
    EXPECT_EQ(__ballot_sync(0xffffffffu, mine), expected);
    EXPECT_EQ(__ballot_sync(0xffffffffu, !mine), ~expected);
  });
}

TEST(EmulatedWarp, WarpsShuffleAtDifferentTimesAndMeetAtTheBarrier) {
  std::vector<int> sums(3);
  runBlocks({dim3(1), dim3(96)}, [&] {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    int value = lane();
    for (int round = 0; round <= warp; ++round) // one warp does more of them than the other
      for (int lanes = 16; lanes > 0; lanes /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, lanes);
    sums[warp] = value;
    __syncthreads();
    EXPECT_EQ(sums, (std::vector<int>{496, 496 * 32, 496 * 32 * 32}));
  });
}

// ---- misuse

using Threads = void (*)();

void runWarps(unsigned warps, Threads threads) { runBlocks({dim3(1), dim3(32 * warps)}, threads); }

TEST(EmulatedMisuse, ABarrierThatSomeThreadsLeaveOutEndsTheProcess) {
  const Threads leavesOneWarpBehind = [] {
    if (threadIdx.x < 32)
      __syncthreads();
  };
  EXPECT_DEATH(runWarps(2, leavesOneWarpBehind), "emulated device: .*returned");
  const Threads leavesOneThreadBehind = [] {
    if (threadIdx.x != 5)
      __syncthreads();
  };
  EXPECT_DEATH(runWarps(1, leavesOneThreadBehind), "emulated device: .*returned");
}

TEST(EmulatedMisuse, TwoBarriersThatThreadsReachInsteadOfEachOtherEndTheProcess) {
  const Threads branches = [] {
    if (threadIdx.x < 32)
      __syncthreads();
    else
      __syncthreads();
  };
  EXPECT_DEATH(runWarps(2, branches), "emulated device: .*different barriers");
}

TEST(EmulatedMisuse, ABarrierAndAShuffleThatWaitForEachOtherEndTheProcess) {
  const Threads mixes = [] {
    if (threadIdx.x < 16)
      __syncthreads();
    __shfl_xor_sync(0xffffffffu, 1, 16);
    if (threadIdx.x >= 16)
      __syncthreads();
  };
  EXPECT_DEATH(runWarps(1, mixes), "emulated device: .*different barriers");
}

TEST(EmulatedMisuse, AShuffleWithoutAWholeWarpEndsTheProcess) {
  const Threads leaves = [] {
    if (threadIdx.x != 31)
      __shfl_xor_sync(0xffffffffu, 1, 1);
  };
  EXPECT_DEATH(runWarps(1, leaves), "emulated device");
  const Threads names = [] { __shfl_xor_sync(0x0000ffffu, 1, 1); };
  EXPECT_DEATH(runWarps(1, names), "only whole warps");
}

TEST(EmulatedMisuse, ABlockOfTooManyThreadsEndsTheProcess) {
  EXPECT_DEATH(runBlocks({dim3(1), dim3(1025)}, [] {}), "1 to 1024 threads");
  EXPECT_DEATH(runBlocks({dim3(1), dim3(0)}, [] {}), "1 to 1024 threads");
}

} // namespace
} // namespace fsdpc::emulated
