// Signs of life: where each rank is and when it last got on, in memory that the ranks of one host share.
//
// Each rank writes one line of the page and reads the others. A rank gets on when it comes to a collective or an
// exchange with other ranks, when it has what it waited for, when it enters a phase, and with every part of a long file
// it reads or writes. As ranks wait for each other, one that hangs soon stops all: the run hangs when no rank gets on
// any more, and a rank that is long at work on its own harms nobody.
#pragma once

#include "runtime/common/collective_trace.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace fsdpc::rt {

/// What a rank is at. Start-up and saving have the time `--init_timeout_seconds`, the others
/// `--train_timeout_seconds`.
enum class Phase : std::uint8_t { startUp, data, step, evaluation, saving };

/// "start_up", "data", "step", "evaluation", "saving".
const char *nameOf(Phase phase);

/// The line of one rank. All zero: a rank on another host, or one that has not started.
struct alignas(128) Heartbeat {
  std::atomic<std::int64_t> progressNanoseconds; ///< when the rank last got on
  std::atomic<std::int64_t> aliveNanoseconds;    ///< when its watchdog last looked; a stopped process does not look
  std::atomic<std::int64_t> arrivals;  ///< collectives and exchanges it has come to; ranks come to the same ones
  std::atomic<std::int64_t> step;      ///< from 1; 0 outside of training
  std::atomic<std::uint64_t> sequence; ///< of the collective it started last
  std::atomic<Phase> phase;
  std::atomic<bool> traced; ///< its trace is written

  bool isSeen() const { return aliveNanoseconds.load(std::memory_order_relaxed) != 0; }
  void beat(std::int64_t now = monotonicNanoseconds()) { progressNanoseconds.store(now, std::memory_order_relaxed); }
  void arrive(std::int64_t now = monotonicNanoseconds()) {
    arrivals.fetch_add(1, std::memory_order_relaxed);
    beat(now);
  }
};

/// The lines of all ranks, and who ends the run. Zero-filled memory is a valid start.
class HeartbeatPage {
public:
  static std::int64_t bytesFor(int worldSize) {
    return static_cast<std::int64_t>(sizeof(HeartbeatPage) + static_cast<std::size_t>(worldSize) * sizeof(Heartbeat));
  }
  /// `memory`: bytesFor(worldSize) zero bytes, on 128 bytes.
  static HeartbeatPage *at(void *memory) { return static_cast<HeartbeatPage *>(memory); }

  Heartbeat &of(int rank) { return reinterpret_cast<Heartbeat *>(this + 1)[rank]; }

  /// Whether this is the first rank to end the run of all: it says why, the others write their traces and go.
  bool claimEnd(int rank, int exitCode) {
    std::uint32_t running = 0;
    const auto value = static_cast<std::uint32_t>(rank + 1) << 16 | static_cast<std::uint32_t>(exitCode);
    return ended_.compare_exchange_strong(running, value, std::memory_order_acq_rel);
  }
  /// 0 while the run goes on; otherwise (rank + 1) << 16 | exitCode.
  std::uint32_t ended() const { return ended_.load(std::memory_order_acquire); }

private:
  alignas(128) std::atomic<std::uint32_t> ended_;
};

static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<Phase>::is_always_lock_free,
              "lines are shared between processes");

/// This rank's line, and the others as far as it can see them: memory of its own until the ranks have joined and share
/// a page. Attached and detached by the main thread; a thread that looks at the page meanwhile holds `lock`.
class Pulse {
public:
  /// `rank`: as the launcher says, until the platform knows.
  explicit Pulse(int rank);
  Pulse(const Pulse &) = delete;
  Pulse &operator=(const Pulse &) = delete;

  /// From here on this rank writes in `page`, which holds the lines of `worldSize` ranks and lives until `detach`.
  void attach(HeartbeatPage &page, int rank, int worldSize);
  void detach();

  void enter(Phase phase);
  void setStep(std::int64_t step) { line().step.store(step, std::memory_order_relaxed); }
  void beat() { line().beat(); }

  /// Seconds since any rank this one sees has got on; since `resumed`, if that was later.
  double silentSeconds();
  /// This process stood still (stopped and continued, or the whole machine was): what that hid is forgiven.
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
