// The last collectives of this rank. They explain a hang or a disagreement.
//
// A ring of fixed size, written by the thread that starts collectives and by the stream that runs them, read by the
// watchdog when the run ends. A write costs a few stores and one clock read.
#pragma once

#include "runtime/common/failure.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fsdpc::rt {

/// Nanoseconds of the monotonic clock, which all processes of a host share.
inline std::int64_t monotonicNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct TracedCollective {
  std::uint64_t sequence = 0; ///< of the run, from 1
  const char *op = "";        ///< as in plan.json; static, like the next two
  const char *unit = "";
  const char *name = "";  ///< id as in plan.json
  std::int64_t bytes = 0; ///< of the full buffer
  int group = 0;          ///< its lowest rank; equal sequence and group identify the same collective
  std::uint64_t fingerprint = 0;
  std::uint64_t operandHash = 0, resultHash = 0; ///< with --debug_collectives detail
  /// 0: not reached yet.
  std::int64_t startedNanoseconds = 0, begunNanoseconds = 0, doneNanoseconds = 0, waitedNanoseconds = 0;

  /// Whether every rank of the group gets the same result.
  bool hasCommonResult() const { return std::string_view(op) != "reduce_scatter"; }

  /// "started", "begun" (every rank has arrived, data moves), "done" (this rank's part), "waited" (every rank's part).
  const char *state() const {
    return waitedNanoseconds ? "waited" : doneNanoseconds ? "done" : begunNanoseconds ? "begun" : "started";
  }
};

/// "reduce_scatter of layers.3"
std::string inWords(const TracedCollective &record);

/// The failure of a collective that `missingRank` did not reach within `seconds`. Its details for the closing line:
/// `[unit=<unit>] seq=<sequence> op=<op> missing=<rank>`.
Failure lateFailure(const TracedCollective &record, int missingRank, double seconds);

/// The failure of a collective that has not ended although no visible rank is late. Its details: `[unit=<unit>]
/// seq=<sequence> op=<op>`.
Failure stuckFailure(const TracedCollective &record, double seconds);

/// Replaces blanks in `text` by '_', because blanks separate the words of the closing line.
std::string withoutBlanks(std::string text);

/// `[unit=<unit>] seq=<sequence> op=<op>`.
std::string closingDetails(const TracedCollective &record);

class CollectiveTrace {
public:
  static constexpr std::uint64_t capacity = 256;

  /// `record` holds everything that is known at the start except the time. Here and below `now` is
  /// monotonicNanoseconds().
  void start(const TracedCollective &record, std::int64_t now);
  void begin(std::uint64_t sequence, std::int64_t now) { stamp(sequence, &Slot::begun, now); }
  void finish(std::uint64_t sequence, std::int64_t now) { stamp(sequence, &Slot::done, now); }
  void hash(std::uint64_t sequence, std::uint64_t operand, std::uint64_t result);
  /// The calling thread waits for this collective until it calls `endWait`.
  void beginWait(std::uint64_t sequence) { waitingFor_.store(sequence, std::memory_order_relaxed); }
  void endWait(std::uint64_t sequence, std::int64_t now);

  /// Returns a recent collective; nullopt if it has left the ring or never existed.
  std::optional<TracedCollective> at(std::uint64_t sequence) const;
  std::uint64_t lastSequence() const { return last_.load(std::memory_order_acquire); }
  /// The collective this rank waits for; 0: none.
  std::uint64_t waitingFor() const { return waitingFor_.load(std::memory_order_relaxed); }

private:
  template <class T>
  using Field = std::atomic<T>;
  struct Slot {
    Field<std::uint64_t> sequence{0};
    Field<const char *> op{""}, unit{""}, name{""};
    Field<std::int64_t> bytes{0};
    Field<int> group{0};
    Field<std::uint64_t> fingerprint{0}, operandHash{0}, resultHash{0};
    Field<std::int64_t> started{0}, begun{0}, done{0}, waited{0};
  };

  void stamp(std::uint64_t sequence, Field<std::int64_t> Slot::*moment, std::int64_t now);

  std::array<Slot, capacity> slots_;
  std::atomic<std::uint64_t> last_{0};
  std::atomic<std::uint64_t> waitingFor_{0};
};

} // namespace fsdpc::rt
