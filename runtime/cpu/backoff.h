// How a thread of this runtime waits for a counter that another thread or rank increments.
#pragma once

#include <sched.h>
#include <time.h>

namespace fsdpc::rt {

/// Spins first (the usual wait is microseconds), then yields the core, then sleeps for short times that grow to 200 us.
/// With `oversubscribed` (more ranks than cores) it spins only briefly, because the other rank may need this core.
class Backoff {
public:
  explicit Backoff(bool oversubscribed)
      : busyRounds_(oversubscribed ? 32 : 4096), yieldRounds_(oversubscribed ? 64 : 256) {}

  void pause() {
    ++round_;
    if (round_ <= busyRounds_)
      relax();
    else if (round_ <= busyRounds_ + yieldRounds_)
      sched_yield();
    else
      sleep();
  }

  /// Whether the wait has become so long that the cost of a clock read is negligible.
  bool isLong() const { return round_ > busyRounds_ && round_ % 16 == 0; }

private:
  static void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  void sleep() {
    const timespec duration{0, sleepNanoseconds_};
    nanosleep(&duration, nullptr);
    if (sleepNanoseconds_ < 200'000)
      sleepNanoseconds_ += sleepNanoseconds_ / 4;
  }

  long busyRounds_;
  long yieldRounds_;
  long round_ = 0;
  long sleepNanoseconds_ = 20'000;
};

} // namespace fsdpc::rt
