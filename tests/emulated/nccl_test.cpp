// The emulated NCCL: collectives among ranks that are threads, symmetric windows, and what ends the process.
#include "runtime/common/bfloat16.h"
#include "tests/emulated/interleaving.h"
#include "tests/emulated/ranks.h"

#include <gtest/gtest.h>

namespace fsdpc::emulated {
namespace {

using rt::Bfloat16;

/// Element i of rank r, a number that every type here has.
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

// ---- what moves where

TEST(EmulatedCollectives, AGatherPutsTheShardsOfAllInOrder) {
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

TEST(EmulatedCollectives, SumsAreOfAllRanksAndAScatteredSumIsItsShare) {
  checkSums<float>(ncclFloat32);
  checkSums<double>(ncclFloat64);
  checkSums<std::int32_t>(ncclInt32);
  checkSums<std::int64_t>(ncclInt64);
  checkSums<Bfloat16>(ncclBfloat16);
}

TEST(EmulatedCollectives, SumsOfBfloat16AreRoundedOnce) {
  runRanks(3, [](const Rank &rank) {
    const Bfloat16 mine(rank.rank == 0 ? 256.0f : 0.75f); // 256 + 0.75 is 256 again, 257.5 becomes 258
    Bfloat16 sum(0.0f);
    ncclAllReduce(&mine, &sum, 1, ncclBfloat16, ncclSum, rank.world, rank.stream);
    cudaStreamSynchronize(rank.stream);
    EXPECT_EQ(static_cast<float>(sum), 258);
  });
}

TEST(EmulatedCollectives, AnAllToAllGivesEachRankItsShareFromEveryOther) {
  runRanks(3, [](const Rank &rank) {
    const auto mine = givenBy<float>(rank.rank, 6);
    std::vector<float> received(6);
    ncclAlltoAll(mine.data(), received.data(), 2, ncclFloat32, rank.world, rank.stream);
    cudaStreamSynchronize(rank.stream);
    for (std::size_t i = 0; i < 6; ++i)
      EXPECT_EQ(received[i], given<float>(static_cast<int>(i / 2), 2 * static_cast<std::size_t>(rank.rank) + i % 2));
  });
}

TEST(EmulatedCollectives, GroupsOfASplitKeepToThemselves) {
  runRanks(4, [](const Rank &rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t pairs = nullptr, some = nullptr;
    ncclCommSplit(rank.world, rank.rank % 2, rank.rank, &pairs, &config);
    ncclCommSplit(rank.world, rank.rank == 3 ? NCCL_SPLIT_NOCOLOR : 0, rank.rank, &some, &config);
    EXPECT_EQ(some == nullptr, rank.rank == 3);
    const float mine = static_cast<float>(1 << rank.rank);
    float ofPair = 0, ofSome[3] = {};
    ncclAllReduce(&mine, &ofPair, 1, ncclFloat32, ncclSum, pairs, rank.stream);
    if (some)
      ncclAllGather(&mine, ofSome, 1, ncclFloat32, some, rank.stream);
    cudaStreamSynchronize(rank.stream);
    EXPECT_EQ(ofPair, rank.rank % 2 ? 2 + 8 : 1 + 4);
    EXPECT_TRUE(!some || (ofSome[0] == 1 && ofSome[1] == 2 && ofSome[2] == 4));
    ncclCommDestroy(pairs);
    if (some)
      ncclCommDestroy(some);
  });
}

// ---- when

__global__ void scaleAll(float *values, int count, float factor) {
  for (int i = 0; i < count; ++i)
    values[i] *= factor;
}

void startScale(cudaStream_t stream, float *values, int count, float factor) {
  cudaLaunchConfig_t configuration = {};
  configuration.stream = stream;
  cudaLaunchKernelEx(&configuration, scaleAll, values, count, factor);
}

TEST(EmulatedCollectives, EachComesBehindWhatEveryRanksStreamHadToDoBefore) {
  for (unsigned seed = 0; seed < 16; ++seed) {
    const Interleaved interleaved(seed);
    runRanks(2, [](const Rank &rank) {
      float mine = static_cast<float>(1 + rank.rank), sum[2] = {};
      for (int round = 0; round < 6; ++round) {
        startScale(rank.stream, &mine, 1, 2);
        ncclAllGather(&mine, sum, 1, ncclFloat32, rank.world, rank.stream);
        ncclAllReduce(&sum[1 - rank.rank], &mine, 1, ncclFloat32, ncclSum, rank.world, rank.stream);
      }
      cudaStreamSynchronize(rank.stream);
      EXPECT_EQ(mine, 3 * std::pow(2.0f, 6) * std::pow(2.0f, 5)); // (1 + 2) doubled, then both ranks' sum, doubled ...
    });
  }
}

/// What another stream finds in the result, with or without a wait for it.
float resultSeen(unsigned seed, bool waits) {
  const Interleaved interleaved(seed);
  float seen = -1;
  runRanks(1, [&](const Rank &rank) {
    cudaStream_t compute = nullptr;
    cudaEvent_t gathered = nullptr;
    cudaStreamCreateWithPriority(&compute, cudaStreamNonBlocking, 0);
    cudaEventCreateWithFlags(&gathered, cudaEventDisableTiming);
    const float mine = 5;
    float all = 0;
    ncclAllGather(&mine, &all, 1, ncclFloat32, rank.world, rank.stream);
    cudaEventRecord(gathered, rank.stream);
    if (waits)
      cudaStreamWaitEvent(compute, gathered);
    cudaMemcpyAsync(&seen, &all, sizeof all, cudaMemcpyDeviceToDevice, compute);
    cudaStreamSynchronize(compute);
    cudaStreamSynchronize(rank.stream);
    cudaEventDestroy(gathered);
    cudaStreamDestroy(compute);
  });
  return seen;
}

TEST(EmulatedCollectives, AnotherStreamSeesTheResultOnlyBehindAWait) {
  unsigned tooEarly = 0;
  for (unsigned seed = 0; seed < seedsTried; ++seed) {
    ASSERT_EQ(resultSeen(seed, true), 5) << seed;
    tooEarly += resultSeen(seed, false) != 5;
  }
  EXPECT_GT(tooEarly, 0u);
}

// ---- windows

/// Gathers on two ranks from and to these offsets, in elements, of windows of 16 floats.
void gatherInWindow(const std::size_t (&from)[2], const std::size_t (&to)[2], std::size_t count) {
  runRanks(2, [&](const Rank &rank) {
    void *memory = nullptr;
    ncclWindow_t window = nullptr;
    ncclMemAlloc(&memory, 16 * sizeof(float));
    ncclCommWindowRegister(rank.world, memory, 16 * sizeof(float), &window, NCCL_WIN_COLL_SYMMETRIC);
    float *const floats = static_cast<float *>(memory);
    ncclAllGather(floats + from[rank.rank], floats + to[rank.rank], count, ncclFloat32, rank.world, rank.stream);
    cudaStreamSynchronize(rank.stream);
    ncclCommWindowDeregister(rank.world, window);
    ncclMemFree(memory);
  });
}

TEST(EmulatedWindows, BuffersHaveTheSameOffsetsOnAllRanks) {
  gatherInWindow({0, 0}, {4, 4}, 2);
  EXPECT_DEATH(gatherInWindow({0, 2}, {4, 4}, 2), "different offsets of a symmetric window");
  EXPECT_DEATH(gatherInWindow({0, 0}, {4, 8}, 2), "different offsets of a symmetric window");
}

TEST(EmulatedWindows, ABufferMustNotLeaveTheWindowOrLieInThatOfSomeMembersOnly) {
  EXPECT_DEATH(gatherInWindow({16, 0}, {0, 0}, 2), "different offsets of a symmetric window");
  EXPECT_DEATH(gatherInWindow({0, 0}, {13, 13}, 2), "leaves the registered window");
  EXPECT_DEATH(gatherInWindow({15, 15}, {0, 0}, 2), "leaves the registered window");
}

// ---- misuse

void callDifferently(int difference) {
  runRanks(2, [&](const Rank &rank) {
    std::vector<float> from(8), to(8);
    const bool differs = rank.rank == 1;
    if (differs && difference == 0)
      ncclAllReduce(from.data(), to.data(), 2, ncclFloat32, ncclSum, rank.world, rank.stream);
    else
      ncclAllGather(from.data(), to.data(), differs && difference == 1 ? 4 : 2,
                    differs && difference == 2 ? ncclInt32 : ncclFloat32, rank.world, rank.stream);
    cudaStreamSynchronize(rank.stream);
  });
}

TEST(EmulatedCollectives, RanksThatCallDifferentOnesEndTheProcess) {
  callDifferently(-1);
  for (int difference = 0; difference < 3; ++difference)
    EXPECT_DEATH(callDifferently(difference), "ranks call different collectives") << difference;
}

} // namespace
} // namespace fsdpc::emulated
