// The emulated device: which operations order streams, and which do not.
#include "tests/emulated/interleaving.h"
#include "tests/emulated/streams.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace fsdpc::emulated {
namespace {

/// Whether the stream reaches its end if everything that may run does.
bool ends(cudaStream_t stream) {
  for (int i = 0; i < 100; ++i)
    if (cudaStreamQuery(stream) == cudaSuccess)
      return true;
  return false;
}

// ---- order

/// Two streams take turns at adding to a value, eight times each. Returns the values that each notes before it adds.
std::vector<int> takeTurns(unsigned seed, bool waits) {
  const Interleaved interleaved(seed);
  OwnedStream streams[2];
  OwnedEvent turns[2];
  int value = 0;
  std::vector<int> seen(16, -1);
  for (int i = 0; i < 16; ++i) {
    if (waits && i > 0)
      cudaStreamWaitEvent(streams[i % 2], turns[(i + 1) % 2]);
    start(streams[i % 2], copyValue, &value, &seen[i]);
    start(streams[i % 2], addOne, &value);
    cudaEventRecord(turns[i % 2], streams[i % 2]);
  }
  for (const OwnedStream &stream : streams)
    cudaStreamSynchronize(stream);
  return seen;
}

TEST(EmulatedStreams, AWaitForAnEventOrdersTwoStreamsUnderEverySeed) {
  std::vector<int> inOrder(16);
  std::iota(inOrder.begin(), inOrder.end(), 0);
  for (unsigned seed = 0; seed < seedsTried; ++seed)
    ASSERT_EQ(takeTurns(seed, true), inOrder) << seed;
}

TEST(EmulatedStreams, WithoutTheWaitMostSeedsShowAWrongOrder) {
  std::vector<int> inOrder(16);
  std::iota(inOrder.begin(), inOrder.end(), 0);
  unsigned wrong = 0;
  for (unsigned seed = 0; seed < seedsTried; ++seed)
    wrong += takeTurns(seed, false) != inOrder;
  EXPECT_GT(wrong, seedsTried / 2);
}

/// A copy that should follow a kernel of the other stream, and does not wait for it.
bool isRaceWon(unsigned seed) {
  const Interleaved interleaved(seed);
  OwnedStream writer, reader;
  int value = 0, seen = -1;
  start(writer, addOne, &value);
  start(reader, copyValue, &value, &seen);
  cudaStreamSynchronize(writer);
  cudaStreamSynchronize(reader);
  return seen == 1;
}

TEST(EmulatedStreams, ASingleRaceIsWonUnderSomeSeedsAndLostUnderOthers) {
  unsigned won = 0;
  for (unsigned seed = 0; seed < seedsTried; ++seed)
    won += isRaceWon(seed);
  EXPECT_GT(won, seedsTried / 8);
  EXPECT_LT(won, seedsTried - seedsTried / 8);
}

TEST(EmulatedStreams, ASeedAlwaysGivesTheSameOrder) {
  for (unsigned seed = 0; seed < 8; ++seed)
    EXPECT_EQ(takeTurns(seed, false), takeTurns(seed, false)) << seed;
}

TEST(EmulatedStreams, TheHostMayBeFarAheadOrJustAhead) {
  unsigned ahead = 0, done = 0;
  for (unsigned seed = 0; seed < seedsTried; ++seed) {
    const Interleaved interleaved(seed);
    OwnedStream stream;
    int value = 0;
    for (int i = 0; i < 20; ++i)
      start(stream, addOne, &value);
    (value < 10 ? ahead : done) += 1;
    cudaStreamSynchronize(stream);
    ASSERT_EQ(value, 20);
  }
  EXPECT_GT(ahead, 0u);
  EXPECT_GT(done, 0u);
}

TEST(EmulatedStreams, EagerCallsAreDoneWhenTheyReturn) {
  OwnedStream stream;
  int value = 0;
  start(stream, addOne, &value);
  EXPECT_EQ(value, 1);
}

// ---- events

TEST(EmulatedEvents, AWaitIsForTheRecordBeforeItNotForALaterOne) {
  for (unsigned seed = 0; seed < seedsTried; ++seed) {
    const Interleaved interleaved(seed);
    OwnedStream a, b;
    OwnedEvent event, back;
    cudaEventRecord(event, a);
    cudaStreamWaitEvent(b, event);
    cudaEventRecord(back, b);
    cudaStreamWaitEvent(a, back);
    cudaEventRecord(event, a); // after b: if b waited for this record, neither would end
    ASSERT_TRUE(ends(a) && ends(b)) << seed;
  }
}

TEST(EmulatedEvents, AWaitBehindTwoRecordsIsForTheSecond) {
  for (unsigned seed = 0; seed < seedsTried; ++seed) {
    const Interleaved interleaved(seed);
    OwnedStream a, b;
    OwnedEvent event;
    int value = 0, seen = -1;
    cudaEventRecord(event, a);
    start(a, addOne, &value);
    cudaEventRecord(event, a);
    cudaStreamWaitEvent(b, event);
    start(b, copyValue, &value, &seen);
    cudaStreamSynchronize(b);
    ASSERT_EQ(seen, 1) << seed;
    cudaStreamSynchronize(a);
  }
}

TEST(EmulatedEvents, AnEventThatWasNeverRecordedIsNotWaitedFor) {
  const Interleaved interleaved(0);
  OwnedStream stream;
  OwnedEvent event;
  cudaStreamWaitEvent(stream, event);
  EXPECT_TRUE(ends(stream));
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
}

TEST(EmulatedEvents, AnEventIsNotReadyBeforeItsStreamGetsThere) {
  const Interleaved interleaved(0);
  OwnedStream held, holder;
  OwnedEvent gate, reached;
  auto opened = std::make_shared<Record>(); // completed only by this test
  Device::instance().enqueue(*holder.handle, {.awaited = opened});
  cudaEventRecord(gate, holder);
  cudaStreamWaitEvent(held, gate);
  cudaEventRecord(reached, held);
  EXPECT_FALSE(ends(held));
  EXPECT_EQ(cudaEventQuery(reached), cudaErrorNotReady);
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, reached, reached), cudaErrorNotReady);
  opened->isCompleted = true;
  EXPECT_TRUE(ends(held));
  EXPECT_EQ(cudaEventQuery(reached), cudaSuccess);
}

TEST(EmulatedEvents, TimeIsThatOfTheLastRecordEvenIfAnEarlierOneIsReachedLater) {
  const Interleaved interleaved(0);
  OwnedStream late, early;
  OwnedEvent event, after;
  auto opened = std::make_shared<Record>();
  Device::instance().enqueue(*late.handle, {.awaited = opened});
  cudaEventRecord(event, late);
  cudaEventRecord(event, early);
  cudaStreamSynchronize(early);
  cudaEventRecord(after, early);
  cudaStreamSynchronize(early);
  opened->isCompleted = true;
  cudaStreamSynchronize(late);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event, after), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
}

TEST(EmulatedStreams, OneThatIsDestroyedIsNotMetAnyMore) {
  bool met = false;
  auto meeting = std::make_shared<Meeting>(Meeting{{nullptr, nullptr}, [&] { met = true; }});
  const auto joinAs = [&](std::size_t member) {
    return Operation{.join = [&meeting, member](Stream &stream) {
      meeting->streams[member] = &stream;
      return meeting;
    }};
  };
  Device::instance().enqueue(*OwnedStream().handle, joinAs(0));
  OwnedStream waiting;
  Device::instance().enqueue(*waiting.handle, joinAs(1));
  EXPECT_FALSE(ends(waiting));
  EXPECT_FALSE(met);
}

// ---- memory

TEST(EmulatedMemory, WhatWasNeverWrittenIsNotANumber) {
  float *numbers = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void **>(&numbers), 1000 * sizeof(float)), cudaSuccess);
  for (int i = 0; i < 1000; ++i)
    ASSERT_TRUE(std::isnan(numbers[i]));
  EXPECT_EQ(cudaFree(numbers), cudaSuccess);
  int mine = 0;
  EXPECT_EQ(cudaFree(&mine), cudaErrorInvalidValue);
}

} // namespace
} // namespace fsdpc::emulated
