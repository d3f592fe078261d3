// Collectives between ranks of several hosts: shared windows inside a host, MPI between hosts.
//
// Inside a host everything is as in SharedCommunicator. A group whose members live on several hosts also moves data
// between them, and every byte crosses to another host once, whatever the number of ranks there:
//
//   all_gather      A rank sends its shard to one partner on each other host, which receives it into its link: memory
//                   that all ranks of its host can read. They copy it from there. Without peers on its host a rank
//                   receives straight into the destination.
//   reduce_scatter  On each host one partner of a rank adds what its host's ranks contribute to that rank's slice, and
//                   sends these sums. The rank adds its own host's operands and what it receives.
//   all_reduce      Both: slices are summed by their owners as in a reduce_scatter, and gathered.
//
// Sums are those of tree_sum.h: a host sends sums of whole subtrees, and the owner adds them in the tree's order, so
// no bit depends on where ranks live. Transfers go in rounds that fit the link, two at a time, so that one is in
// flight while the other is added or copied. The link's size is fixed at compile time (link_bytes.h).
//
// The lowest member on each host (its leader) tells the other leaders that its host is ready. MPI is called on the
// threads of the streams, except for answers to a roll call.
#pragma once

#include "runtime/cpu/host_group.h"
#include "runtime/cpu/mpi_library.h"
#include "runtime/cpu/mpi_roll_call.h"
#include "runtime/cpu/shared_communicator.h"

#include <memory>
#include <span>
#include <vector>

namespace fsdpc::rt {

/// Where the ranks live, and the memory of this rank's host. Vectors are indexed by rank; pointers of ranks of other
/// hosts are null. All memory outlives the communicator.
struct HostMemory {
  std::vector<int> hostOfRank; ///< any number per host
  ControlBlock *control = nullptr;
  std::vector<const std::byte *> windows;
  std::vector<const std::byte *> links;
  std::byte *ownLink = nullptr;
  std::int64_t linkBytes = 0; ///< of each rank; linkBytesFor, or less in tests
};

class HostsCommunicator final : public SharedCommunicator {
public:
  /// Collective: splits `world`, which numbers the ranks. With streams of threads MPI must have been started with
  /// MPI_THREAD_MULTIPLE. Throws Failure{incompatible} if the link is too small for how ranks are spread over hosts.
  HostsCommunicator(MPI_Comm world, HostMemory memory, CommunicatorOptions options);
  ~HostsCommunicator() override;

private:
  static constexpr std::int64_t cacheLineBytes = 64;
  /// The MPI handles of one group on one channel. Ranks in `members` are positions in the group.
  struct Handles {
    MPI_Comm members = MPI_COMM_NULL;
    MPI_Comm leaders = MPI_COMM_NULL; ///< null on other members
  };
  /// What one channel needs. Two collectives of a channel never run at once.
  struct ChannelState {
    std::vector<Handles> groups; ///< like Communicator::groups()
    std::int64_t linkOffset = 0;
    std::vector<MPI_Request> receives[2], sends[2]; ///< of the rounds with an even and with an odd number
    std::vector<const std::byte *> operands;
    std::vector<SumPart> parts;
    std::uint64_t arrival[2] = {}; ///< MPI may write here as long as an arrival is outstanding
  };
  /// The slice of each owner in a buffer that all members have.
  struct Slices;

  bool isHere(int peer) const override {
    return memory_.hostOfRank[static_cast<std::size_t>(peer)] == memory_.hostOfRank[static_cast<std::size_t>(rank())];
  }
  void awaitOtherHosts(const CollectiveRequest &request) override;
  void transfer(const CollectiveRequest &request) override;
  void lookAround(Mark mark, const CollectiveRequest &request, Clock::time_point since) const override;

  void openChannel(int channel, MPI_Comm world);
  void checkLink(const HostGroup &group) const;
  const HostGroup &hostsOf(const CollectiveRequest &request) const {
    return hostGroups_[static_cast<std::size_t>(axisOf(request.collective) + 1)];
  }
  ChannelState &stateOf(const CollectiveRequest &request) {
    return channels_[static_cast<std::size_t>(request.channel)];
  }
  Handles &handlesOf(const CollectiveRequest &request) {
    return stateOf(request).groups[static_cast<std::size_t>(axisOf(request.collective) + 1)];
  }
  [[noreturn]] void disagree(const CollectiveRequest &request);

  void gather(const CollectiveRequest &request);
  void postGather(const CollectiveRequest &request, std::int64_t round, std::int64_t pieceBytes);
  void takeGathered(const CollectiveRequest &request, std::int64_t round, std::int64_t pieceBytes);
  void reduce(const CollectiveRequest &request, const Slices &slices, std::byte *total);
  void receiveParts(const CollectiveRequest &request, const Slices &slices, std::int64_t round);
  void sendParts(const CollectiveRequest &request, const Slices &slices, std::int64_t round);
  void sendPart(const CollectiveRequest &request, int owner, const Subtree &part, std::int64_t offsetBytes,
                std::int64_t elements, std::byte *slot, std::vector<MPI_Request> &sends);
  void addParts(const CollectiveRequest &request, const Slices &slices, std::int64_t round, std::byte *total);
  void allReduce(const CollectiveRequest &request);
  void exchangeTotals(const CollectiveRequest &request, const Slices &slices, std::byte *own);
  void takeTotals(const CollectiveRequest &request, const Slices &slices, std::int64_t round);

  std::int64_t elementsPerRound(const HostGroup &group, DType dtype) const;
  /// Of the half of a rank's link that this round uses.
  std::int64_t halfOffset(const CollectiveRequest &request, std::int64_t round) {
    return stateOf(request).linkOffset + (round % 2) * halfBytes_;
  }
  std::byte *ownHalf(const CollectiveRequest &request, std::int64_t round) {
    return memory_.ownLink + halfOffset(request, round);
  }
  const std::byte *halfOf(int member, const CollectiveRequest &request, std::int64_t round) {
    return memory_.links[static_cast<std::size_t>(request.group->rankOf(member))] + halfOffset(request, round);
  }
  /// Tells the peers on this host that what this rank received in the round can be read.
  void stage(const CollectiveRequest &request, std::int64_t round);
  void awaitStaged(const CollectiveRequest &request, int member, std::int64_t round);
  /// Tells the peers that this rank has read what they received, and waits until all have.
  void take(const CollectiveRequest &request, std::int64_t round);
  void awaitTaken(const CollectiveRequest &request, std::int64_t round);

  void receive(const CollectiveRequest &request, std::byte *to, std::int64_t bytes, int member,
               std::vector<MPI_Request> &requests);
  void send(const CollectiveRequest &request, const std::byte *from, std::int64_t bytes, int member,
            std::vector<MPI_Request> &requests);
  /// Drives MPI until the operations have completed, and clears the list. Every rank has arrived and data flows, which
  /// happens only during MPI calls.
  void complete(std::vector<MPI_Request> &operations, const CollectiveRequest &request);
  /// The same for an operation that other ranks may join much later: sleeps between calls.
  void complete(MPI_Request operation, const CollectiveRequest &request);
  void answerAndCheck(const CollectiveRequest &request, Clock::time_point since) const;
  [[noreturn]] void failLate(const CollectiveRequest &request) const;

  HostMemory memory_;
  std::vector<HostGroup> hostGroups_; ///< like Communicator::groups()
  std::int64_t halfBytes_ = 0;
  std::array<ChannelState, channelCount> channels_;
  MPI_Comm rollCallHandle_ = MPI_COMM_NULL;
  std::unique_ptr<RollCall> rollCall_;
};

} // namespace fsdpc::rt
