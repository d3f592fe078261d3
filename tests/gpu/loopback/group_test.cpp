// Tests specific to the loopback transport: meetings end, and calls that differ end the process.
#include "tests/emulated/interleaving.h"
#include "tests/emulated/ranks.h"

#include <gtest/gtest.h>

namespace fsdpc::emulated {
namespace {

/// Each rank's sum of all ranks' numbers after so many rounds on two streams with a communicator each.
TEST(LoopbackGroups, TwoCommunicatorsOfTheSameRanksTakeTurnsUnderEveryInterleaving) {
  for (unsigned seed = 0; seed < 16; ++seed) {
    const Interleaved interleaved(seed);
    runRanks(3, [](const Rank &rank) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      ncclComm_t second = nullptr;
      cudaStream_t other = nullptr;
      ncclCommSplit(rank.world, 0, rank.rank, &second, &config);
      cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, 0);
      float mine = static_cast<float>(1 << rank.rank), sums[2] = {};
      for (int round = 0; round < 8; ++round) {
        ncclAllReduce(&mine, &sums[0], 1, ncclFloat32, ncclSum, rank.world, rank.stream);
        ncclAllReduce(&mine, &sums[1], 1, ncclFloat32, ncclSum, second, other);
      }
      cudaStreamSynchronize(other);
      cudaStreamSynchronize(rank.stream);
      EXPECT_EQ(sums[0], 7);
      EXPECT_EQ(sums[1], 7);
      ncclCommDestroy(second);
      cudaStreamDestroy(other);
    });
  }
}

TEST(LoopbackGroups, NoOperandIsOverwrittenBeforeEveryMemberHasReadIt) {
  for (unsigned seed = 0; seed < seedsTried; ++seed) {
    const Interleaved interleaved(seed);
    runRanks(2, [](const Rank &rank) {
      const float next[2] = {static_cast<float>(10 + rank.rank), static_cast<float>(20 + rank.rank)};
      float mine = static_cast<float>(rank.rank), all[2] = {};
      ncclAllGather(&mine, all, 1, ncclFloat32, rank.world, rank.stream);
      cudaMemcpyAsync(&mine, &next[0], sizeof mine, cudaMemcpyDeviceToDevice, rank.stream);
      cudaStreamSynchronize(rank.stream);
      EXPECT_EQ(all[0], 0);
      EXPECT_EQ(all[1], 1);
    });
  }
}

TEST(LoopbackGroups, ATypeWithoutASumIsRefusedOnEveryRank) {
  runRanks(2, [](const Rank &rank) {
    std::uint8_t mine = 1, sum = 0;
    EXPECT_EQ(ncclAllReduce(&mine, &sum, 1, ncclUint8, ncclSum, rank.world, rank.stream), ncclInvalidArgument);
  });
}

TEST(LoopbackGroups, RanksThatCallDifferentCollectivesEndTheProcess) {
  const auto differ = [] {
    runRanks(2, [](const Rank &rank) {
      float from[2] = {}, to[4] = {};
      ncclAllGather(from, to, rank.rank == 0 ? 1 : 2, ncclFloat32, rank.world, rank.stream);
    });
  };
  EXPECT_DEATH(differ(), "ranks call different collectives");
}

} // namespace
} // namespace fsdpc::emulated
