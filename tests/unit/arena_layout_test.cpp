// Buffers with overlapping live ranges do not share memory, including buffers that are carried to the next step.
// Buffers with disjoint live ranges reuse memory.
#include "passes/plan/arena_layout.h"

#include <gtest/gtest.h>
#include <random>

namespace fsdpc {
namespace {

constexpr int64_t alignment = 64, positions = 20000;

struct Buffers {
  explicit Buffers(size_t count) : all(count) {
    for (Buffer &buffer : all) {
      buffer.bytes = static_cast<int64_t>(generator() % 5000) + 1;
      buffer.begin = static_cast<int64_t>(generator() % positions);
      buffer.end = buffer.begin + static_cast<int64_t>(generator() % (generator() % 50 == 0 ? positions : 40));
    }
  }
  /// The buffer is not live between the two positions.
  void carry(size_t index, int64_t bytes, int64_t until, int64_t from) {
    all[index].bytes = bytes;
    all[index].carriedUntil = until;
    all[index].begin = from;
    all[index].end = std::numeric_limits<int64_t>::max();
  }
  ArenaLayout layOut() {
    std::vector<Buffer *> pointers;
    for (Buffer &buffer : all)
      pointers.push_back(&buffer);
    return fsdpc::layOut(pointers, alignment);
  }

  std::mt19937 generator{7};
  std::vector<Buffer> all;
};

int64_t maxLiveBytes(const std::vector<Buffer> &buffers) {
  std::vector<int64_t> change(positions + 1);
  auto add = [&](int64_t first, int64_t last, int64_t bytes) {
    change[first] += bytes;
    change[std::min(last + 1, positions)] -= bytes;
  };
  for (const Buffer &buffer : buffers) {
    add(buffer.begin, std::min(buffer.end, positions - 1), buffer.bytes);
    if (buffer.carriedUntil >= 0)
      add(0, buffer.carriedUntil, buffer.bytes);
  }
  int64_t live = 0, most = 0;
  for (int64_t bytes : change)
    most = std::max(most, live += bytes);
  return most;
}

void expectApart(const std::vector<Buffer> &buffers, const ArenaLayout &layout) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(layout.offsets[i] % alignment, 0);
    ASSERT_LE(layout.offsets[i] + buffers[i].bytes, layout.heightBytes);
    for (size_t j = 0; j < i; ++j) {
      bool overlap = layout.offsets[i] < layout.offsets[j] + buffers[j].bytes &&
                     layout.offsets[j] < layout.offsets[i] + buffers[i].bytes;
      ASSERT_FALSE(overlap && buffers[i].meets(buffers[j])) << i << " and " << j;
    }
  }
}

TEST(ArenaLayout, KeepsApartWhatLivesAtTheSameTime) {
  for (size_t count : {size_t{1}, size_t{500}, size_t{4000}}) {
    Buffers buffers(count);
    const ArenaLayout layout = buffers.layOut();
    expectApart(buffers.all, layout);
    EXPECT_LE(layout.heightBytes, 2 * maxLiveBytes(buffers.all) + alignment);
  }
}

TEST(ArenaLayout, WhatAStepLeavesToTheNextLendsItsMemoryMeanwhile) {
  for (size_t count : {size_t{500}, size_t{4000}}) {
    Buffers buffers(count);
    const int64_t most = maxLiveBytes(buffers.all);
    buffers.carry(0, most, 5, positions - 5);
    const ArenaLayout layout = buffers.layOut();
    expectApart(buffers.all, layout);
    EXPECT_LT(layout.heightBytes, 2 * most) << "nobody used the memory while it was away";
  }
}

TEST(ArenaLayout, WhatTwoStepsLeaveToTheNextIsNeverAway) {
  Buffers buffers(4000);
  buffers.carry(0, 1000, 12000, 15000);
  buffers.carry(1, 1000, 5, 11000);
  expectApart(buffers.all, buffers.layOut());
}

TEST(ArenaLayout, GrowingBuffersShareMemoryAlthoughSmallOnesBeginBetweenThem) {
  Buffers buffers(4000);
  for (size_t i = 0; i < buffers.all.size(); ++i) {
    Buffer &buffer = buffers.all[i];
    const bool isLarge = i % 80 == 0;
    buffer.bytes = isLarge ? 1'000'000 + static_cast<int64_t>(i) * 1000 : alignment;
    buffer.begin = static_cast<int64_t>(i) * 4;
    buffer.end = isLarge ? buffer.begin + 2 : positions - 1;
  }
  const ArenaLayout layout = buffers.layOut();
  expectApart(buffers.all, layout);
  EXPECT_LE(layout.heightBytes, maxLiveBytes(buffers.all) + alignment * 4000);
}

} // namespace
} // namespace fsdpc
