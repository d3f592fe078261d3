// Heartbeats: where each rank is and when it last made progress, in memory that the ranks of one host share.
//
// Each rank writes one line of the page and reads the others. A rank makes progress when it reaches a collective or an
// exchange with other ranks, when a wait ends, when it enters a phase, and with every slice of a long file that it
// reads or writes. As ranks wait for each other, one rank that hangs soon stops all of them. The run hangs when no rank
// makes progress any more. One rank that computes for a long time is not a hang.
#pragma once

#include "runtime/common/collective_trace.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace fsdpc::rt {

/// The phase of a rank. The time limit of start-up and saving is `--init_timeout_seconds`, that of the others
/// `--train_timeout_seconds`.
enum class Phase : std::uint8_t { startUp, data, step, evaluation, saving };

/// "start_up", "data", "step", "evaluation", "saving".
const char *nameOf(Phase phase);

/// The line of one rank. All zero: a rank on another host, or one that has not started.
struct alignas(128) Heartbeat {
  std::atomic<std::int64_t> progressNanoseconds; ///< when the rank last made progress
  std::atomic<std::int64_t> aliveNanoseconds;    ///< when its watchdog last ran; it does not run in a stopped process
  std::atomic<std::int64_t> arrivals;            ///< collectives and exchanges it has reached; the same on every rank
  std::atomic<std::int64_t> step;                ///< from 1; 0 outside of training
  std::atomic<std::uint64_t> sequence;           ///< of the collective it started last
  std::atomic<Phase> phase;
  std::atomic<bool> traced; ///< its trace is written

  bool isSeen() const { return aliveNanoseconds.load(std::memory_order_relaxed) != 0; }
  void beat(std::int64_t now = monotonicNanoseconds()) { progressNanoseconds.store(now, std::memory_order_relaxed); }
  void arrive(std::int64_t now = monotonicNanoseconds()) {
    arrivals.fetch_add(1, std::memory_order_relaxed);
    beat(now);
  }
};

/// The lines of all ranks, and the rank that ends the run. Zero-filled memory is a valid start.
class HeartbeatPage {
public:
  static std::int64_t bytesFor(int worldSize) {
    return static_cast<std::int64_t>(sizeof(HeartbeatPage) + static_cast<std::size_t>(worldSize) * sizeof(Heartbeat));
  }
  /// `memory`: bytesFor(worldSize) zero bytes, aligned to 128 bytes.
  static HeartbeatPage *at(void *memory) { return static_cast<HeartbeatPage *>(memory); }

  Heartbeat &of(int rank) { return reinterpret_cast<Heartbeat *>(this + 1)[rank]; }

  /// Returns whether this rank is the first of all to end the run. That rank reports why; the others write their traces
  /// and exit.
  bool claimEnd(int rank, int exitCode) {
    std::uint32_t running = 0;
    const auto value = static_cast<std::uint32_t>(rank + 1) << 16 | static_cast<std::uint32_t>(exitCode);
    return ended_.compare_exchange_strong(running, value, std::memory_order_acq_rel);
  }
  /// 0 while the run continues; otherwise (rank + 1) << 16 | exitCode.
  std::uint32_t ended() const { return ended_.load(std::memory_order_acquire); }

  /// Adds `bits` to what the ranks do at a boundary, a number that only grows (runtime/checkpoint/requests.h). Two
  /// successive boundaries are remembered.
  void ask(std::uint64_t boundary, std::uint8_t bits) {
    std::atomic<std::uint64_t> &slot = asked_[boundary % 2];
    std::uint64_t known = slot.load(std::memory_order_acquire), wanted = 0;
    do {
      if (known >> 8 > boundary)
        return;
      wanted = (known >> 8 == boundary ? known : boundary << 8) | bits;
    } while (!slot.compare_exchange_weak(known, wanted, std::memory_order_acq_rel));
  }
  std::uint8_t askedFor(std::uint64_t boundary) const {
    const std::uint64_t known = asked_[boundary % 2].load(std::memory_order_acquire);
    return known >> 8 == boundary ? static_cast<std::uint8_t>(known & 0xff) : std::uint8_t{0};
  }

private:
  alignas(128) std::atomic<std::uint32_t> ended_;
  std::atomic<std::uint64_t> asked_[2];
};

static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<Phase>::is_always_lock_free,
              "lines are shared between processes");

/// A rank whose watchdog has not run for so long is stopped, or its machine stands still.
inline constexpr std::int64_t absenceNanoseconds = 1'500'000'000;

/// This rank's line and those of the ranks that it can see. Uses private memory until the ranks have joined and share a
/// page. The main thread attaches and detaches it. Any other thread holds `lock` while it reads the page.
class Pulse {
public:
  /// `rank`: as given by the launcher, until the platform knows it.
  explicit Pulse(int rank);
  Pulse(const Pulse &) = delete;
  Pulse &operator=(const Pulse &) = delete;

  /// From now on this rank writes to `page`, which holds the lines of `worldSize` ranks and lives until `detach`.
  void attach(HeartbeatPage &page, int rank, int worldSize);
  void detach();

  void enter(Phase phase);
  void setStep(std::int64_t step) { line().step.store(step, std::memory_order_relaxed); }
  void beat() { line().beat(); }
  /// For loops that may wait for another rank: no progress is noted while one that is seen is stopped or has ended.
  void beatWhileAllRun();

  /// Seconds since any visible rank made progress, or since `resumed` if that is later.
  double silentSeconds();
  /// This process was suspended (stopped and continued, or the entire machine was). Restarts the count of silent
  /// seconds.
  void resumed() { resumedNanoseconds_.store(monotonicNanoseconds(), std::memory_order_relaxed); }

  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  HeartbeatPage &page() { return *page_; }
  /// The line of `rank`; null for ranks that are not in the page.
  Heartbeat *lineOf(int rank) { return attached_ ? &page_->of(rank) : rank == rank_ ? &line() : nullptr; }
  Heartbeat &line() { return *line_.load(std::memory_order_acquire); }
  int rank() const { return rank_; }
  int worldSize() const { return worldSize_; } ///< rank() + 1 before the ranks have joined

  CollectiveTrace &trace() { return trace_; }

private:
  void moveTo(Heartbeat &other);

  struct alignas(128) OwnPage {
    std::byte bytes[2 * 128] = {};
  };
  OwnPage own_;
  std::mutex mutex_;
  HeartbeatPage *page_;
  std::atomic<Heartbeat *> line_;
  int rank_;
  int worldSize_;
  bool attached_ = false;
  std::atomic<std::int64_t> resumedNanoseconds_{0};
  CollectiveTrace trace_;
};

} // namespace fsdpc::rt
