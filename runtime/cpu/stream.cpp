#include "runtime/cpu/stream.h"

#include "runtime/common/thread.h"
#include "runtime/cpu/backoff.h"

#include <cstring>

namespace fsdpc::rt {

Stream::Stream(Mode mode, bool oversubscribed) : mode_(mode), oversubscribed_(oversubscribed) {
  if (mode_ == Mode::inlined)
    return;
  worker_ = startThread([this] { work(); });
}

Stream::~Stream() {
  if (!worker_.joinable())
    return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  worker_.join();
}

Stream::Event Stream::push(Function function, const void *task, std::size_t bytes) {
  if (enqueued_ - finished_.load(std::memory_order_acquire) == capacity)
    synchronize(enqueued_ - capacity + 1);
  Slot &slot = slots_[enqueued_ % capacity];
  slot.function = function;
  std::memcpy(slot.task.data(), task, bytes);
  if (mode_ == Mode::inlined)
    return ++enqueued_;
  Event event;
  {
    std::lock_guard lock(mutex_);
    event = ++enqueued_;
  }
  wake_.notify_one();
  return event;
}

void Stream::synchronize(Event event) {
  Backoff backoff(oversubscribed_);
  while (!finished(event))
    if (mode_ == Mode::inlined)
      runNext();
    else
      backoff.pause();
  if (failed_.load(std::memory_order_acquire))
    std::rethrow_exception(failure_);
}

void Stream::runNext() {
  const Event index = finished_.load(std::memory_order_relaxed);
  const Slot &slot = slots_[index % capacity];
  if (!failed_.load(std::memory_order_relaxed)) {
    try {
      slot.function(slot.task.data());
    } catch (...) {
      failure_ = std::current_exception();
      failed_.store(true, std::memory_order_release);
    }
  }
  finished_.store(index + 1, std::memory_order_release);
}

void Stream::work() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || enqueued_ > finished_.load(std::memory_order_relaxed); });
      if (stopping_)
        return;
    }
    runNext();
  }
}

} // namespace fsdpc::rt
