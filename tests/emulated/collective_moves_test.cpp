// Collectives between ranks that are threads: which bytes go where. Covers the emulated NCCL, and the loopback
// transport (tests/gpu/loopback) on the emulated device and on a real one.
#include "runtime/common/bfloat16.h"
#include "tests/emulated/ranks.h"

#include <gtest/gtest.h>

namespace fsdpc::emulated {
namespace {

using rt::Bfloat16;

/// Element i of rank r, a value that every type here represents exactly.
template <class T>
T given(int rank, std::size_t i) {
  return static_cast<T>(static_cast<float>(rank * 8 + static_cast<int>(i % 8)));
}

template <class T>
std::vector<T> givenBy(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = given<T>(rank, i);
  return values;
}

template <class T>
T sumOver(int ranks, std::size_t i) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank)
    sum += static_cast<float>(given<T>(rank, i));
  return static_cast<T>(sum);
}

template <class T>
bool equal(const T &a, const T &b) {
  return static_cast<float>(a) == static_cast<float>(b);
}

TEST(CollectiveMoves, AGatherPutsTheShardsOfAllInOrder) {
  for (const int ranks : {1, 2, 3})
    runRanks(ranks, [](const Rank &rank) {
      const auto mine = givenBy<std::int64_t>(rank.rank, 5);
      std::vector<std::int64_t> all(5 * static_cast<std::size_t>(rank.size)), inPlace(all.size());
      ncclAllGather(mine.data(), all.data(), 5, ncclInt64, rank.world, rank.stream);
      std::copy(mine.begin(), mine.end(), inPlace.begin() + 5 * rank.rank);
      ncclAllGather(inPlace.data() + 5 * rank.rank, inPlace.data(), 5, ncclInt64, rank.world, rank.stream);
      cudaStreamSynchronize(rank.stream);
      for (std::size_t i = 0; i < all.size(); ++i)
        EXPECT_EQ(all[i], given<std::int64_t>(static_cast<int>(i / 5), i % 5));
      EXPECT_EQ(inPlace, all);
    });
}

template <class T>
void checkSums(ncclDataType_t type) {
  runRanks(2, [&](const Rank &rank) {
    const auto mine = givenBy<T>(rank.rank, 6);
    std::vector<T> shard(3), all(6), inPlace = mine;
    ncclReduceScatter(mine.data(), shard.data(), 3, type, ncclSum, rank.world, rank.stream);
    ncclAllReduce(mine.data(), all.data(), 6, type, ncclSum, rank.world, rank.stream);
    ncclAllReduce(inPlace.data(), inPlace.data(), 6, type, ncclSum, rank.world, rank.stream);
    cudaStreamSynchronize(rank.stream);
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_TRUE(equal(all[i], sumOver<T>(2, i)));
      EXPECT_TRUE(equal(inPlace[i], all[i]));
      EXPECT_TRUE(i >= 3 || equal(shard[i], all[3 * static_cast<std::size_t>(rank.rank) + i]));
    }
  });
}

TEST(CollectiveMoves, SumsAreOfAllRanksAndAScatteredSumIsItsShare) {
  checkSums<float>(ncclFloat32);
  checkSums<double>(ncclFloat64);
  checkSums<std::int32_t>(ncclInt32);
  checkSums<std::int64_t>(ncclInt64);
  checkSums<Bfloat16>(ncclBfloat16);
}

TEST(CollectiveMoves, SumsOfBfloat16AreRoundedOnce) {
  runRanks(3, [](const Rank &rank) {
    // 256 + 0.75 is 256 again, 257.5 becomes 258
    const std::vector<Bfloat16> mine = {Bfloat16(rank.rank == 0 ? 256.0f : 0.75f)};
    std::vector<Bfloat16> sum(1, Bfloat16(0.0f));
    ncclAllReduce(mine.data(), sum.data(), 1, ncclBfloat16, ncclSum, rank.world, rank.stream);
    cudaStreamSynchronize(rank.stream);
    EXPECT_EQ(static_cast<float>(sum[0]), 258);
  });
}

TEST(CollectiveMoves, AnAllToAllGivesEachRankItsShareFromEveryOther) {
  runRanks(3, [](const Rank &rank) {
    const auto mine = givenBy<float>(rank.rank, 6);
    std::vector<float> received(6);
    ncclAlltoAll(mine.data(), received.data(), 2, ncclFloat32, rank.world, rank.stream);
    cudaStreamSynchronize(rank.stream);
    for (std::size_t i = 0; i < 6; ++i)
      EXPECT_EQ(received[i], given<float>(static_cast<int>(i / 2), 2 * static_cast<std::size_t>(rank.rank) + i % 2));
  });
}

TEST(CollectiveMoves, GroupsOfASplitKeepToThemselves) {
  runRanks(4, [](const Rank &rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t pairs = nullptr, some = nullptr;
    ncclCommSplit(rank.world, rank.rank % 2, rank.rank, &pairs, &config);
    ncclCommSplit(rank.world, rank.rank == 3 ? NCCL_SPLIT_NOCOLOR : 0, rank.rank, &some, &config);
    EXPECT_EQ(some == nullptr, rank.rank == 3);
    const std::vector<float> mine = {static_cast<float>(1 << rank.rank)};
    std::vector<float> ofPair(1), ofSome(3);
    ncclAllReduce(mine.data(), ofPair.data(), 1, ncclFloat32, ncclSum, pairs, rank.stream);
    if (some)
      ncclAllGather(mine.data(), ofSome.data(), 1, ncclFloat32, some, rank.stream);
    cudaStreamSynchronize(rank.stream);
    EXPECT_EQ(ofPair[0], rank.rank % 2 ? 2 + 8 : 1 + 4);
    EXPECT_TRUE(!some || (ofSome[0] == 1 && ofSome[1] == 2 && ofSome[2] == 4));
    ncclCommDestroy(pairs);
    if (some)
      ncclCommDestroy(some);
  });
}

} // namespace
} // namespace fsdpc::emulated
