// Stream capture and graphs of the emulated device: the order that a launch ensures, and calls that a capture refuses.
#include "tests/emulated/interleaving.h"
#include "tests/emulated/ranks.h"
#include "tests/emulated/streams.h"

#include <cstdint>
#include <thread>

namespace fsdpc::emulated {
namespace {

/// A graph that is destroyed with the test.
struct OwnedGraph {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ~OwnedGraph() {
    if (executable)
      cudaGraphExecDestroy(executable);
    if (graph)
      cudaGraphDestroy(graph);
  }
  /// Captures what `body` enqueues; the error code is that of ending the capture.
  template <class Body>
  cudaError_t capture(cudaStream_t origin, const Body &body) {
    cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal);
    body();
    const cudaError_t error = cudaStreamEndCapture(origin, &graph);
    return error == cudaSuccess ? cudaGraphInstantiate(&executable, graph) : error;
  }
};

cudaStreamCaptureStatus statusOf(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
  return status;
}

__global__ void addTo(const int *from, int *to) { *to += *from; }

// ---- launches

TEST(EmulatedCapture, WhatIsCapturedRunsWithEachLaunchAndNotBefore) {
  for (unsigned seed = 0; seed < seedsTried; ++seed) {
    const Interleaved interleaved(seed);
    OwnedStream stream;
    OwnedGraph graph;
    int given = 1, kept = 0, sum = 0;
    ASSERT_EQ(graph.capture(stream,
                            [&] {
                              start(stream, addTo, &given, &sum);
                              cudaMemcpyAsync(&kept, &sum, sizeof sum, cudaMemcpyDeviceToHost, stream);
                              cudaMemsetAsync(&given, 0, sizeof given, stream);
                            }),
              cudaSuccess);
    std::size_t nodes = 0;
    cudaGraphGetNodes(graph.graph, nullptr, &nodes);
    ASSERT_EQ(nodes, 3u);
    cudaStreamSynchronize(stream);
    ASSERT_EQ(sum, 0) << seed;
    const int later[] = {5, 20, 300};
    for (const int &value : later) { // arguments are from the capture, memory from the launch
      cudaMemcpyAsync(&given, &value, sizeof value, cudaMemcpyHostToDevice, stream);
      cudaGraphLaunch(graph.executable, stream);
    }
    cudaStreamSynchronize(stream);
    ASSERT_EQ(kept, 325) << seed;
    ASSERT_EQ(given, 0) << seed;
  }
}

/// Two branches of one graph; the second adds the first's result, if it waits for it. The sum after two launches.
int sumOfBranches(unsigned seed, bool waits) {
  const Interleaved interleaved(seed);
  OwnedStream main, side;
  OwnedEvent forked, added, joined;
  OwnedGraph graph;
  int one = 1, value = 0, sum = 0;
  const cudaError_t error = graph.capture(main, [&] {
    cudaEventRecord(forked, main);
    cudaStreamWaitEvent(side, forked);
    start(main, addTo, &one, &value);
    cudaEventRecord(added, main);
    if (waits)
      cudaStreamWaitEvent(side, added);
    start(side, addTo, &value, &sum);
    cudaEventRecord(joined, side);
    cudaStreamWaitEvent(main, joined);
  });
  EXPECT_EQ(error, cudaSuccess);
  cudaGraphLaunch(graph.executable, main);
  cudaGraphLaunch(graph.executable, main);
  cudaStreamSynchronize(main);
  return sum;
}

TEST(EmulatedCapture, EventsOrderTheBranchesOfAGraphAndNothingElseDoes) {
  unsigned wrong = 0;
  for (unsigned seed = 0; seed < seedsTried; ++seed) {
    ASSERT_EQ(sumOfBranches(seed, true), 1 + 2) << seed;
    wrong += sumOfBranches(seed, false) != 1 + 2;
  }
  EXPECT_GT(wrong, seedsTried / 8);
  EXPECT_LT(wrong, seedsTried - seedsTried / 8);
}

TEST(EmulatedCapture, ALaunchStandsInItsStreamLikeAKernel) {
  for (unsigned seed = 0; seed < seedsTried; ++seed) {
    const Interleaved interleaved(seed);
    OwnedStream stream, other;
    OwnedEvent done;
    OwnedGraph graph;
    int value = 0, seen = -1;
    graph.capture(stream, [&] {
      for (int i = 0; i < 5; ++i)
        start(stream, addOne, &value);
    });
    start(stream, addOne, &value);
    cudaGraphLaunch(graph.executable, other); // captured from another stream than it runs on
    cudaStreamSynchronize(stream);
    cudaStreamSynchronize(other);
    cudaGraphLaunch(graph.executable, stream);
    cudaEventRecord(done, stream);
    cudaStreamWaitEvent(other, done);
    start(other, copyValue, &value, &seen);
    cudaStreamSynchronize(other);
    ASSERT_EQ(seen, 11) << seed;
  }
}

TEST(EmulatedCapture, AnExternalRecordIsNewWithEveryLaunchAndTheHostMayAskForIt) {
  const Interleaved interleaved(0);
  OwnedStream stream, holder;
  OwnedEvent gate, inside;
  OwnedGraph graph;
  int value = 0;
  EXPECT_EQ(cudaEventRecordWithFlags(inside, stream, cudaEventRecordExternal), cudaErrorInvalidValue);
  ASSERT_EQ(graph.capture(stream,
                          [&] {
                            start(stream, addOne, &value);
                            cudaEventRecordWithFlags(inside, stream, cudaEventRecordExternal);
                          }),
            cudaSuccess);
  EXPECT_EQ(cudaEventQuery(inside), cudaSuccess);
  for (int launch = 1; launch <= 2; ++launch) {
    auto opened = std::make_shared<Record>(); // completed only by this test
    Device::instance().enqueue(*holder.handle, {.awaited = opened});
    cudaEventRecord(gate, holder);
    cudaStreamWaitEvent(stream, gate);
    cudaGraphLaunch(graph.executable, stream);
    EXPECT_EQ(cudaEventQuery(inside), cudaErrorNotReady);
    opened->isCompleted = true;
    EXPECT_EQ(cudaEventSynchronize(inside), cudaSuccess);
    EXPECT_EQ(value, launch);
  }
}

TEST(EmulatedCapture, CollectivesOfGraphsMeetThoseOfOtherRanksInOrder) {
  for (unsigned seed = 0; seed < 16; ++seed) {
    const Interleaved interleaved(seed);
    runRanks(2, [&](const Rank &rank) {
      std::int64_t mine = rank.rank + 1, sum = 0, total = 0;
      const auto add = [&] {
        ncclAllReduce(&mine, &sum, 1, ncclInt64, ncclSum, rank.world, rank.stream);
        ncclAllReduce(&sum, &total, 1, ncclInt64, ncclSum, rank.world, rank.stream);
        cudaMemcpyAsync(&mine, &total, sizeof mine, cudaMemcpyDeviceToDevice, rank.stream);
      };
      OwnedGraph graph;
      ASSERT_EQ(graph.capture(rank.stream, add), cudaSuccess);
      cudaGraphLaunch(graph.executable, rank.stream);
      add();
      cudaGraphLaunch(graph.executable, rank.stream);
      cudaStreamSynchronize(rank.stream);
      ASSERT_EQ(total, 3 * 2 * 4 * 4) << seed;
    });
  }
}

// ---- calls that a capture refuses

/// The error of `call` within a capture, which it voids.
template <class Call>
void expectVoided(cudaError_t expected, const Call &call) {
  OwnedStream stream;
  OwnedGraph graph;
  int value = 0;
  EXPECT_EQ(graph.capture(stream,
                          [&] {
                            EXPECT_EQ(call(stream), expected);
                            EXPECT_EQ(statusOf(stream), cudaStreamCaptureStatusInvalidated);
                            EXPECT_EQ(cudaMemsetAsync(&value, 1, sizeof value, stream),
                                      cudaErrorStreamCaptureInvalidated);
                          }),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph.graph, nullptr);
  EXPECT_EQ(statusOf(stream), cudaStreamCaptureStatusNone);
  start(stream, addOne, &value); // it executes its work again
  cudaStreamSynchronize(stream);
  EXPECT_EQ(value, 1);
}

TEST(EmulatedCapture, NothingMayWaitForWhatIsOnlyCaptured) {
  expectVoided(cudaErrorStreamCaptureUnsupported, [](cudaStream_t stream) { return cudaStreamSynchronize(stream); });
  expectVoided(cudaErrorStreamCaptureUnsupported, [](cudaStream_t stream) { return cudaStreamQuery(stream); });
  OwnedEvent event;
  expectVoided(cudaErrorCapturedEvent, [&](cudaStream_t stream) {
    cudaEventRecord(event, stream);
    return cudaEventQuery(event);
  });
  OwnedStream other;
  EXPECT_EQ(cudaStreamWaitEvent(other, event), cudaErrorCapturedEvent); // nor after the capture
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventRecord(event, other), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
}

TEST(EmulatedCapture, AThreadThatCapturesAllocatesNothingAndAsksForNoEvent) {
  void *memory = nullptr;
  OwnedEvent event;
  expectVoided(cudaErrorStreamCaptureUnsupported, [&](cudaStream_t) { return cudaMalloc(&memory, 64); });
  expectVoided(cudaErrorStreamCaptureUnsupported, [&](cudaStream_t) { return cudaMallocHost(&memory, 64); });
  expectVoided(cudaErrorStreamCaptureUnsupported, [&](cudaStream_t) { return cudaFree(memory); });
  expectVoided(cudaErrorStreamCaptureUnsupported, [&](cudaStream_t) { return cudaEventQuery(event); });
  // Other threads may.
  OwnedStream stream;
  OwnedGraph graph;
  EXPECT_EQ(graph.capture(stream,
                          [&] {
                            std::thread([&] {
                              EXPECT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
                              EXPECT_EQ(cudaFree(memory), cudaSuccess);
                            }).join();
                          }),
            cudaSuccess);
}

TEST(EmulatedCapture, NoEdgeMayCrossItsBorder) {
  OwnedEvent before, never;
  OwnedStream other;
  cudaEventRecord(before, other);
  expectVoided(cudaErrorStreamCaptureIsolation,
               [&](cudaStream_t stream) { return cudaStreamWaitEvent(stream, before); });
  OwnedStream stream;
  OwnedGraph graph;
  EXPECT_EQ(graph.capture(stream, [&] { EXPECT_EQ(cudaStreamWaitEvent(stream, never), cudaSuccess); }), cudaSuccess);
}

TEST(EmulatedCapture, ABranchThatDoesNotComeBackIsAnError) {
  OwnedStream stream, side;
  OwnedEvent forked;
  OwnedGraph graph;
  int value = 0;
  EXPECT_EQ(graph.capture(stream,
                          [&] {
                            cudaEventRecord(forked, stream);
                            cudaStreamWaitEvent(side, forked);
                            start(side, addOne, &value);
                          }),
            cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph.graph, nullptr);
  EXPECT_EQ(statusOf(side), cudaStreamCaptureStatusNone);
}

TEST(EmulatedCapture, TwoCapturesDoNotMergeAndEachEndsWhereItBegan) {
  OwnedStream first, second, third;
  OwnedEvent event;
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal), cudaErrorIllegalState);
  cudaStreamBeginCapture(second, cudaStreamCaptureModeThreadLocal);
  cudaEventRecord(event, first);
  cudaStreamWaitEvent(third, event);
  EXPECT_EQ(cudaStreamEndCapture(third, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(cudaStreamWaitEvent(second, event), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(cudaStreamEndCapture(first, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(second, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(second, &graph), cudaErrorIllegalState);
}

TEST(EmulatedCapture, AnotherThreadCannotEndIt) {
  OwnedStream stream;
  OwnedGraph graph;
  EXPECT_EQ(graph.capture(stream,
                          [&] {
                            std::thread([&] {
                              cudaGraph_t none = nullptr;
                              EXPECT_EQ(cudaStreamEndCapture(stream, &none), cudaErrorStreamCaptureWrongThread);
                            }).join();
                          }),
            cudaSuccess);
}

} // namespace
} // namespace fsdpc::emulated
