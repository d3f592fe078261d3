// The communicator of one rank: numbers collectives, runs their bodies on the stream of their channel, and implements
// the guarantees of `wait`.
//
// All collectives of a rank have one sequence, 1, 2, 3 ..., in the order they are started, over all groups and
// channels. It is the same on every rank, because all ranks run the same program. A collective passes four states on
// each member of its group:
//
//   ready    started: the operand is complete (the start follows the statement that made it, on the same thread)
//   begun    the body runs: every member is ready, peers' operands may be read
//   done     this rank's result is complete and it reads no peer's operand any more
//   waited   every member is done: the operand's memory may be reused
//
// SharedCommunicator publishes these states as counters in memory that the ranks of a host share. Between hosts
// (HostsCommunicator) `begun` also means that the ranks of other hosts are ready; `done` is needed of the ranks of the
// own host only, because others do not read its windows, and what is sent to them has left when the body ends.
//
// Why no order of groups, channels and waits deadlocks. Starts and waits form one list of operations, the same on every
// rank.
//
// One host, streams inline or threads: a body waits for `ready` only, which a start raises without running
// anything. Take the rank with the least progress in the list. It is in operation p: a wait for collective s, or a
// start that makes space in a ring. Every rank is at p or further, so everything started before p is ready everywhere,
// and the bodies of this rank run. In a wait it then needs its peers to be done with s. A peer further on has left p,
// so it was done. A peer at p runs its own body of s by the same argument. So the rank with the least progress always
// continues.
//
// Several hosts, inline: a body also waits for the bodies of its peers. The list alone decides which bodies an
// operation runs (those of a channel up to the one waited for), so every rank runs the same bodies in the same order,
// over both channels. All peers join the rank with the least progress in that order.
//
// Several hosts, threads: of the collectives that are not complete on all members take the first, t. A member that has
// not started t waits for an earlier one, but those are complete. A stream that has not reached t is in an earlier one,
// but those are complete. So all members are in t.
#pragma once

#include "runtime/common/failure.h"
#include "runtime/common/platform.h"
#include "runtime/common/profile.h"
#include "runtime/cpu/collectives.h"
#include "runtime/cpu/stream.h"

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace fsdpc::rt {

enum class CollectiveOp : std::uint8_t { allGather, reduceScatter, allReduce };

/// As in plan.json: "all_gather", "reduce_scatter", "all_reduce".
const char *nameOf(CollectiveOp op);

/// How many channels these collectives use; all of them use the first.
int channelsOf(std::span<const CollectiveInfo> collectives);

/// The ranks among which a collective runs: `stride` apart, numbered in rank order.
struct RankGroup {
  int first = 0;
  int stride = 1;
  int size = 1;
  int member = 0; ///< the position of this rank

  int rankOf(int index) const { return first + index * stride; }
};

struct CollectiveRequest {
  CollectiveOp op = CollectiveOp::allGather;
  DType dtype = DType::u8;
  Channel channel = Channel::comm; ///< set by Communicator::start, as are group and sequence
  int collective = 0;              ///< index into the side table
  const RankGroup *group = nullptr;
  std::uint64_t sequence = 0;
  std::uint64_t fingerprint =
      0; ///< set by Communicator::start: hash of everything that must agree between ranks; 0: not compared
  std::int64_t sourceOffsetBytes = 0; ///< in every rank's window
  const std::byte *source = nullptr;  ///< the same location in this rank's window
  std::byte *destination = nullptr;
  std::int64_t elements = 0; ///< of the shard (all_gather, in bytes; reduce_scatter) or of the full buffer (all_reduce)
  CollectiveRecord *record = nullptr; ///< --profile: receives its times
};

struct CommunicatorOptions {
  /// How long to wait for a peer in one collective. With a pulse: how long to wait while no rank makes progress.
  double timeoutSeconds = 100;
  /// How long a rank waits for a lower rank to report a time-out, and how long a rank waits to be ended once another
  /// rank has ended the run.
  double graceSeconds = 5;
  bool oversubscribed = false; ///< more ranks than cores on this host
  std::span<const CollectiveInfo> collectives = {};
  std::span<const MeshAxisInfo> axes = {};
  Pulse *pulse = nullptr; ///< receives heartbeats and traces of collectives; null in tests that need neither
  DebugCollectives debug = DebugCollectives::sequence;
  SlowLink slowLink = {};
  /// Hook for tests that delay ranks. Called on the thread that runs the body, after all ranks are ready and before
  /// anything is read.
  std::function<void(std::uint64_t sequence)> whenBegun = {};
};

struct CommunicatorTimes {
  double communicationMicroseconds = 0; ///< time in bodies, without waits for peers
  double exposedMicroseconds = 0;       ///< time of the compute thread in `wait` after every rank had arrived
  double skewMicroseconds = 0;          ///< time in `wait` before every rank had arrived
};

class Communicator {
public:
  Communicator(int rank, int worldSize, CommunicatorOptions options);
  virtual ~Communicator() = default;
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  /// Announces the operand and enqueues the body on the stream, which is that of the collective's channel.
  Ticket start(Stream &stream, CollectiveRequest request);
  /// Throws Failure{timeout} if a rank does not arrive, with the details of the closing line `[unit=<unit>]
  /// seq=<sequence> op=<op> missing=<the lowest missing rank>`. If the group is not all ranks, a missing member may
  /// itself wait for a rank of another group; then that rank is named.
  void wait(Ticket ticket);
  /// Waits for all outstanding collectives: at the end of a run, one may have been started for a step that does not
  /// follow. Called by all ranks at the same point of the program.
  void drain();

  /// Returns the times accumulated since the last call. Called from the thread that waits. Collectives may be
  /// outstanding: a body counts when it ends, the time in `wait` when `wait` returns.
  CommunicatorTimes takeTimes();

  int rank() const { return rank_; }
  int worldSize() const { return worldSize_; }
  Channel channelOf(int collective) const;

protected:
  using Clock = std::chrono::steady_clock;

  /// Tells peers that the operand of `request` is complete. Runs on the calling thread.
  virtual void announce(const CollectiveRequest &request) = 0;
  /// Waits for peers to be ready and produces the result. Runs on the stream.
  virtual void run(const CollectiveRequest &request) = 0;
  /// Called in `wait`, on the calling thread. Returns when every rank is ready / has begun / is done. A transport that
  /// cannot observe this returns immediately and calls `countSkew` from `run`. Its `run` must not return before the
  /// operand is free.
  virtual void awaitReady(const CollectiveRequest &request) = 0;
  virtual void awaitBegun(const CollectiveRequest &request) = 0;
  virtual void awaitDone(const CollectiveRequest &request) = 0;

  /// Sleeps for the delay of a slow link. Called at the end of every body, before its time is counted.
  void slowDown(const CollectiveRequest &request) const;
  void countCommunication(const CollectiveRequest &request, Clock::time_point since);
  void countSkew(const CollectiveRequest &request, Clock::time_point since);
  const CommunicatorOptions &options() const { return options_; }
  /// All ranks, then the groups of the mesh axes: element axisOf(collective) + 1.
  std::span<const RankGroup> groups() const { return groups_; }
  /// Index into the mesh axes; -1: all ranks.
  int axisOf(int collective) const;
  /// Called by `run` once every rank has arrived, before anything is read.
  void markBegun(const CollectiveRequest &request);
  /// Whether a wait that began at `since` has lasted too long.
  bool isLate(Clock::time_point since) const;
  /// The failure of a collective that a rank did not reach in time: `missing`, unless heartbeats identify another rank.
  Failure timeoutFailure(const CollectiveRequest &request, int missing) const;
  /// The failure of a rank whose peer has reached another collective, with this index in the side table, or the same
  /// one with other arguments. Details: `[unit=] seq= op= other=<peer> [other_unit=] other_op=`.
  Failure disagreement(const CollectiveRequest &request, int peer, int peerCollective) const;

private:
  std::uint64_t fingerprintOf(const CollectiveRequest &request) const;
  TracedCollective traced(const CollectiveRequest &request) const;
  TracedCollective traced(int collective) const;
  void runAndMark(const CollectiveRequest &request);

  /// The state of a collective of the side table, which is outstanding at most once.
  struct Outstanding {
    CollectiveRequest request;
    Stream *stream = nullptr;
    Stream::Event event = 0;
    bool waited = true;
  };

  Outstanding &entryOf(int collective);
  void complete(const Outstanding &entry);

  const int rank_;
  const int worldSize_;
  const CommunicatorOptions options_;
  std::vector<RankGroup> groups_; ///< all ranks, then one per mesh axis
  std::uint64_t sequence_ = 0;
  std::vector<Outstanding> outstanding_; ///< indexed like the side table
  std::atomic<std::int64_t> communicationNanoseconds_{0};
  std::array<std::atomic<std::int64_t>, channelCount> bodySkewNanoseconds_{};
  std::int64_t exposedNanoseconds_ = 0;
  std::int64_t skewNanoseconds_ = 0;
};

} // namespace fsdpc::rt
