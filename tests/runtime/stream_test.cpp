// Streams: order, when tasks run, and what an exception in one does.
#include "runtime/cpu/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace fsdpc::rt {
namespace {

const Stream::Mode bothModes[] = {Stream::Mode::inlined, Stream::Mode::threads};

TEST(Stream, RunsTasksInTheOrderTheyCame) {
  for (Stream::Mode mode : bothModes) {
    const auto stream = std::make_unique<Stream>(mode);
    std::vector<int> ran;
    ran.reserve(3 * Stream::capacity);
    for (int i = 0; i < static_cast<int>(3 * Stream::capacity); ++i)
      stream->enqueue([&ran, i] { ran.push_back(i); });
    stream->synchronize(stream->record());
    ASSERT_EQ(ran.size(), 3 * Stream::capacity);
    for (int i = 0; i < static_cast<int>(ran.size()); ++i)
      ASSERT_EQ(ran[i], i);
  }
}

TEST(Stream, InlineRunsNothingBeforeItIsWaitedFor) {
  const auto stream = std::make_unique<Stream>(Stream::Mode::inlined);
  int ran = 0;
  const auto count = [&ran] { ++ran; };
  const Stream::Event first = stream->enqueue(count);
  const Stream::Event second = stream->enqueue(count);
  EXPECT_EQ(ran, 0);
  EXPECT_FALSE(stream->finished(first));
  stream->synchronize(first);
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(stream->finished(first));
  EXPECT_FALSE(stream->finished(second));
  stream->synchronize(second);
  EXPECT_EQ(ran, 2);
}

TEST(Stream, ThreadsRunOnAnotherThreadWithoutBeingWaitedFor) {
  const auto stream = std::make_unique<Stream>(Stream::Mode::threads);
  std::thread::id ranOn;
  const Stream::Event event = stream->enqueue([&ranOn] { ranOn = std::this_thread::get_id(); });
  while (!stream->finished(event))
    std::this_thread::yield();
  EXPECT_NE(ranOn, std::this_thread::get_id());
}

TEST(Stream, AnExceptionReachesTheWaitingThreadAndLaterTasksAreSkipped) {
  for (Stream::Mode mode : bothModes) {
    const auto stream = std::make_unique<Stream>(mode);
    bool later = false;
    stream->enqueue([] { throw std::runtime_error("broken"); });
    const Stream::Event event = stream->enqueue([&later] { later = true; });
    for (int i = 0; i < 2; ++i)
      EXPECT_THROW(stream->synchronize(event), std::runtime_error);
    EXPECT_FALSE(later);
  }
}

TEST(Stream, EndsTheTaskThatRunsAndDropsTheRest) {
  for (Stream::Mode mode : bothModes) {
    auto stream = std::make_unique<Stream>(mode);
    std::atomic<bool> ending{false};
    std::vector<int> begun, ended;
    for (int i = 0; i < 100; ++i)
      stream->enqueue([&, i] {
        begun.push_back(i);
        while (!ending)
          std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ended.push_back(i);
      });
    ending = true;
    stream.reset();
    // The number of tasks that began is random. Each of them has ended, in order, and no other task accesses memory.
    EXPECT_EQ(begun, ended);
    for (std::size_t i = 0; i < ended.size(); ++i)
      EXPECT_EQ(ended[i], static_cast<int>(i));
    EXPECT_TRUE(mode == Stream::Mode::threads || ended.empty());
  }
}

} // namespace
} // namespace fsdpc::rt
