// Collectives between the ranks of one host: every rank reads its peers' windows in place.
//
// all_gather copies each peer's shard straight into the destination. reduce_scatter sums this rank's slice of all
// windows into the shard. all_reduce sums the full buffer on every rank. Nothing is staged. The counters of a control
// block order the reads and writes of different ranks. Each counter is written by one rank only, and each writer has
// its own cache line.
#pragma once

#include "runtime/cpu/communicator.h"

#include <vector>

namespace fsdpc::rt {

/// Shared state of ranks other than their windows. Lives in memory that every rank maps (or, in tests, in the memory of
/// the process whose threads act as ranks). Zero-filled memory is a valid start. Outside the plan.
class ControlBlock {
public:
  static std::int64_t bytesFor(int worldSize);
  /// `memory`: bytesFor(worldSize) zero bytes, aligned to a cache line.
  static ControlBlock *at(void *memory) { return static_cast<ControlBlock *>(memory); }

  /// Each is written by one rank. A value is the sequence of the last collective that has reached this state. The
  /// sequence counts over all channels, and within a channel it ascends.
  struct ChannelProgress {
    alignas(64) std::atomic<std::uint64_t> begun; ///< by the channel's stream, as are the others
    std::atomic<std::uint64_t> done;
    // Rounds of an exchange between hosts, as HostsCommunicator numbers them.
    std::atomic<std::uint64_t> staged; ///< what this rank has received can be read
    std::atomic<std::uint64_t> taken;  ///< this rank has read what its peers received
  };
  /// The collective that a rank has reached. Readable once `ready` has its sequence, until its slot is reused.
  struct Announcement {
    std::atomic<std::uint64_t> tagged; ///< low 16 bits of the sequence, high 48 of the fingerprint; 0: not compared
    std::atomic<int> collective;       ///< index of the side table
  };
  /// Slots of announcements. Exceeds the number of collectives that one rank may have started and another has not yet
  /// run.
  static constexpr std::uint64_t announcements = 64;
  struct Progress {
    alignas(64) std::atomic<std::uint64_t> ready; ///< by the thread that starts collectives
    ChannelProgress channels[channelCount];
    Announcement announced[announcements]; ///< by the thread that starts collectives, at sequence % announcements
  };
  Progress &of(int rank) { return progress()[rank]; }

  /// Makes every rank that waits, or will wait, in a collective throw Failure{exitCode}. The first caller's code wins.
  void endRun(int rank, int exitCode);
  /// 0 while the run continues; otherwise (rank + 1) << 16 | exitCode.
  std::uint32_t ended() const { return ended_.load(std::memory_order_acquire); }

private:
  Progress *progress() { return reinterpret_cast<Progress *>(this + 1); }

  alignas(64) std::atomic<std::uint32_t> ended_;
};

class SharedCommunicator : public Communicator {
public:
  /// `windows[r]`: the address of rank r's window in this process (readable; windows[rank] is this rank's own). Control
  /// block and windows outlive the communicator.
  SharedCommunicator(int rank, ControlBlock &control, std::vector<const std::byte *> windows,
                     CommunicatorOptions options);

protected:
  enum class Moment : std::uint8_t { ready, begun, done, staged, taken };
  /// A counter of a rank, and the value that it has to reach.
  struct Mark {
    Moment moment;
    std::uint64_t value;
  };

  /// Whether the window of this rank can be read. True for the ranks of this host.
  virtual bool isHere(int) const { return true; }
  /// Waits until the ranks of other hosts have begun the collective; those of this host are ready.
  virtual void awaitOtherHosts(const CollectiveRequest &) {}
  /// Produces the result. Every member has begun.
  virtual void transfer(const CollectiveRequest &request);
  /// Called again and again in a wait that has become long.
  virtual void lookAround(Mark mark, const CollectiveRequest &request, Clock::time_point since) const;

  /// Returns when `peer`, a rank of this host, has reached the mark on the request's channel.
  void awaitPeer(Mark mark, const CollectiveRequest &request, int peer) const;
  /// The same for every member of the request's group that lives on this host.
  void awaitMembers(Mark mark, const CollectiveRequest &request) const;
  /// Copies the shards of the members that live on this host to their positions.
  void copyShards(const CollectiveRequest &request) const;
  void throwIfEnded() const;
  ControlBlock::ChannelProgress &ownProgress(const CollectiveRequest &request) {
    return control_.of(rank()).channels[static_cast<int>(request.channel)];
  }
  const std::byte *operandOf(int peer, const CollectiveRequest &request) const {
    return peer == rank() ? request.source : windows_[peer] + request.sourceOffsetBytes;
  }

private:
  void announce(const CollectiveRequest &request) override;
  void run(const CollectiveRequest &request) override;
  void awaitReady(const CollectiveRequest &request) override {
    awaitMembers({Moment::ready, request.sequence}, request);
  }
  void awaitBegun(const CollectiveRequest &request) override {
    awaitMembers({Moment::begun, request.sequence}, request);
  }
  void awaitDone(const CollectiveRequest &request) override { awaitMembers({Moment::done, request.sequence}, request); }

  /// Throws Failure{disagreement} if a member has reached another collective.
  void compareAnnouncements(const CollectiveRequest &request) const;
  bool hasCome(Mark mark, const CollectiveRequest &request, int peer) const;
  void throwIfLate(Mark mark, const CollectiveRequest &request, Clock::time_point since) const;
  /// A missing member may itself wait for a rank of another group. Returns the rank with the least progress of all, or
  /// `missing` if it is that rank.
  int slowestRank(int missing) const;
  void sum(const CollectiveRequest &request, std::int64_t offsetBytes) const;

  ControlBlock &control_;
  const std::vector<const std::byte *> windows_;
};

} // namespace fsdpc::rt
