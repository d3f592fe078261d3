// The emulated NCCL: when collectives run, symmetric windows, and misuse that ends the process.
#include "tests/emulated/interleaving.h"
#include "tests/emulated/ranks.h"

#include <gtest/gtest.h>

namespace fsdpc::emulated {
namespace {

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

/// What another stream reads from the result, with or without a wait.
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

/// On two ranks, gathers from and to these offsets, in elements, of windows of 16 floats.
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
