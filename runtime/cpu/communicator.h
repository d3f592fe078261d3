// The communicator of one rank: numbers collectives, runs their bodies on the communication stream, waits for what
// `wait` promises.
//
// All collectives of a rank have one sequence, 1, 2, 3 ..., in the order they are started; it is the same on every
// rank, because all ranks run the same program. A collective goes through four moments on each rank:
//
//   ready   started: the operand is complete (the start stands after the statement that produced it, on the calling
//   thread) begun   the body runs: every rank is ready, peers' operands may be read done    this rank's result is
//   complete and it reads no peer's operand any more waited  every rank is done: the operand's memory may be used again
//
// Transports differ in how these moments are made known: SharedCommunicator raises counters in shared memory,
// MpiCommunicator leaves it to the library, whose collectives copy the operand away.
#pragma once

#include "runtime/common/failure.h"
#include "runtime/cpu/collectives.h"
#include "runtime/cpu/stream.h"

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <span>
#include <string>

namespace fsdpc::rt {

enum class CollectiveOp : std::uint8_t { allGather, reduceScatter, allReduce };

/// As in plan.json: "all_gather", "reduce_scatter", "all_reduce".
const char *nameOf(CollectiveOp op);

struct CollectiveRequest {
  CollectiveOp op = CollectiveOp::allGather;
  DType dtype = DType::u8;
  int collective = 0;                 ///< index of the side table
  std::uint64_t sequence = 0;         ///< given by Communicator::start
  std::int64_t sourceOffsetBytes = 0; ///< in every rank's window
  const std::byte *source = nullptr;  ///< the same place in this rank's window
  std::byte *destination = nullptr;
  std::byte *staging = nullptr;
  std::int64_t elements = 0; ///< of the shard (all_gather, in bytes; reduce_scatter) or of the whole (all_reduce)
};

struct CommunicatorOptions {
  double timeoutSeconds = 100; ///< how long to wait for a peer in one collective
  /// How long a rank that is not the one to report a time-out leaves that to the lower one, and how long one that sees
  /// the run end waits to be ended with it.
  double graceSeconds = 5;
  bool oversubscribed = false; ///< more ranks than cores on this host
  std::span<const CollectiveInfo> collectives = {};
  /// Tests delay ranks here: called on the thread that runs the body, after all ranks are ready and before anything is
  /// read.
  std::function<void(std::uint64_t sequence)> whenBegun = {};
};

struct CommunicatorTimes {
  double communicationMicroseconds = 0; ///< bodies ran, waiting for peers not counted
  double exposedMicroseconds = 0;       ///< the compute thread stood in `wait` although every rank had arrived
  double skewMicroseconds = 0;          ///< it stood there because some rank had not
};

class Communicator {
public:
  Communicator(int rank, int worldSize, CommunicatorOptions options);
  virtual ~Communicator() = default;
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  /// Announces the operand and enqueues the body.
  Ticket start(Stream &stream, CollectiveRequest request);
  /// Throws Failure{timeout} if some rank does not come, with the details of the closing line
  /// `[unit=<unit>] seq=<sequence> op=<op> missing=<the lowest missing rank>`.
  void wait(Stream &stream, Ticket ticket);

  /// What accumulated since the last call. Called with nothing outstanding.
  CommunicatorTimes takeTimes();

  int rank() const { return rank_; }
  int worldSize() const { return worldSize_; }

protected:
  using Clock = std::chrono::steady_clock;

  /// Tells peers that the operand of `request` is complete. On the calling thread.
  virtual void announce(const CollectiveRequest &request) = 0;
  /// Waits for peers to be ready and produces the result. On the stream.
  virtual void run(const CollectiveRequest &request) = 0;
  /// On the calling thread, in `wait`: returns when every rank is ready / has begun / is done. A transport that cannot
  /// tell returns at once and calls `countSkew` from `run`; its `run` must not return before the operand is free.
  virtual void awaitReady(const CollectiveRequest &request) = 0;
  virtual void awaitBegun(const CollectiveRequest &request) = 0;
  virtual void awaitDone(const CollectiveRequest &request) = 0;

  void countCommunication(Clock::time_point since);
  void countSkew(Clock::time_point since);
  const CommunicatorOptions &options() const { return options_; }
  /// The failure of a collective that `missingRank` did not reach in time.
  Failure timeoutFailure(const CollectiveRequest &request, int missingRank) const;

private:
  /// More than a stream's ring holds, so an entry is not overwritten while its body has not run.
  static constexpr std::uint64_t capacity = 2 * Stream::capacity;
  struct Outstanding {
    CollectiveRequest request;
    Stream::Event event = 0;
  };

  const int rank_;
  const int worldSize_;
  const CommunicatorOptions options_;
  std::uint64_t sequence_ = 0;
  std::array<Outstanding, capacity> outstanding_;
  std::atomic<std::int64_t> communicationNanoseconds_{0};
  std::atomic<std::int64_t> bodySkewNanoseconds_{0};
  std::int64_t exposedNanoseconds_ = 0;
  std::int64_t skewNanoseconds_ = 0;
};

} // namespace fsdpc::rt
