// A stream: tasks that run one after another, in the order they were enqueued.
//
//   threads   a worker thread runs them as they arrive
//   inlined   the thread that synchronizes runs them, when it does; nothing runs before that
//
// An event is a number: how many tasks of the stream must have finished. Enqueuing allocates nothing: a task is a small
// trivially copyable function object, copied into a ring of fixed size. One thread enqueues and synchronizes (the
// compute stream, which is the thread that calls the program's functions).
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>

namespace fsdpc::rt {

class Stream {
public:
  enum class Mode : std::uint8_t { inlined, threads };
  using Event = std::uint64_t;

  static constexpr std::size_t taskBytes = 112;
  static constexpr std::uint64_t capacity = 512;

  /// `oversubscribed`: more ranks than cores on this host, so waits yield the core early.
  explicit Stream(Mode mode, bool oversubscribed = false);
  /// Drops tasks that have not begun, and waits for a task that is running.
  ~Stream();
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;

  /// Enqueues `task()`. If the ring is full, first waits for (or, inlined, runs) the oldest task.
  template <class Task>
  Event enqueue(const Task &task) {
    static_assert(std::is_trivially_copyable_v<Task> && sizeof(Task) <= taskBytes && alignof(Task) <= 16);
    return push([](const void *stored) { (*static_cast<const Task *>(stored))(); }, &task, sizeof(Task));
  }

  /// An event for everything enqueued so far.
  Event record() const { return enqueued_; }
  bool finished(Event event) const { return finished_.load(std::memory_order_acquire) >= event; }

  /// Returns when the tasks of `event` have finished. Rethrows the first exception any task threw; after one, later
  /// tasks are skipped and every synchronize throws.
  void synchronize(Event event);

  Mode mode() const { return mode_; }

private:
  using Function = void (*)(const void *);
  struct Slot {
    Function function;
    alignas(16) std::array<std::byte, taskBytes> task;
  };

  Event push(Function function, const void *task, std::size_t bytes);
  void runNext();
  void work();

  const Mode mode_;
  const bool oversubscribed_;
  std::array<Slot, capacity> slots_;
  Event enqueued_ = 0; ///< written by the enqueuing thread, under mutex_ when there is a worker
  std::atomic<Event> finished_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread worker_;
};

} // namespace fsdpc::rt
