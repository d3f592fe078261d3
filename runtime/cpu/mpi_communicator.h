// Collectives through the MPI library alone: between hosts, or when the program was compiled with `--transport mpi`.
//
// all_gather is MPI's, from the shard straight into the destination. reduce_scatter is an all-to-all into planned
// staging, all_reduce an all-gather into planned staging. The sum then uses the tree of tree_sum.h, so it is bitwise
// identical to that of the shared path. MPI's own reductions are not used: the library chooses their order.
//
// Each pair of channel and mesh axis has its own MPI handle, split off once at start. The stream of a channel runs its
// collectives in the same order on every rank, so those on one handle match, and two streams never share one.
//
// MPI is called on the streams only. When the body has run, MPI has sent the operand, so its memory is free and `wait`
// has nothing more to wait for.
#pragma once

#include "runtime/cpu/communicator.h"
#include "runtime/cpu/mpi_roll_call.h"

#include "runtime/cpu/mpi_library.h"

#include <optional>
#include <vector>

namespace fsdpc::rt {

class MpiCommunicator final : public Communicator {
public:
  /// MPI counts are of type `int`. Longer messages are split into slices of this size.
  static constexpr std::int64_t defaultPieceBytes = std::int64_t{1} << 30;

  /// Collective: splits and duplicates `communicator`. With streams of threads MPI must have been started with
  /// MPI_THREAD_MULTIPLE.
  MpiCommunicator(MPI_Comm communicator, CommunicatorOptions options, std::int64_t pieceBytes = defaultPieceBytes);
  ~MpiCommunicator() override;

private:
  enum class Exchange : std::uint8_t { allGather, allToAll };

  void announce(const CollectiveRequest &) override {}
  void run(const CollectiveRequest &request) override;
  void awaitReady(const CollectiveRequest &) override {}
  void awaitBegun(const CollectiveRequest &) override {}
  void awaitDone(const CollectiveRequest &) override {}

  /// The MPI handles of the collectives of one channel.
  struct ChannelHandles {
    MPI_Comm all = MPI_COMM_NULL;
    std::vector<MPI_Comm> axes; ///< this rank's groups, indexed like ProgramInfo::axes
    std::optional<RollCall> rollCall;
    std::uint64_t arrival[2] = {}; ///< MPI may write here as long as an arrival is outstanding
  };

  void openChannel(ChannelHandles &channel, MPI_Comm communicator);
  ChannelHandles &channelFor(const CollectiveRequest &request) {
    return channels_[static_cast<std::size_t>(request.channel)];
  }
  MPI_Comm handleFor(const CollectiveRequest &request);
  /// Returns when every member has arrived. Throws Failure{disagreement} if one has arrived for another collective.
  void awaitArrival(const CollectiveRequest &request);
  [[noreturn]] void disagree(const CollectiveRequest &request);
  /// Stores member m's block (`bytes`: its operand, or the part of it for this rank) at `to` + m x bytes.
  void exchange(Exchange kind, const CollectiveRequest &request, std::byte *to, std::int64_t bytes);
  void exchangePiece(Exchange kind, const CollectiveRequest &request, std::byte *to, std::int64_t blockBytes,
                     std::int64_t offsetBytes, int bytes);
  void sumStaging(const CollectiveRequest &request) const;
  /// Drives MPI until the operation has completed. `moving`: every rank has arrived and data flows, which happens only
  /// during MPI calls. Otherwise the wait may be long, and sleeps.
  void complete(MPI_Request operation, const CollectiveRequest &request, bool moving);
  void lookAround(const CollectiveRequest &request, Clock::time_point since);
  [[noreturn]] void failLate(const CollectiveRequest &request);

  int missingRank(const CollectiveRequest &request, const std::vector<bool> &present) const;

  std::int64_t pieceBytes_;
  std::array<ChannelHandles, channelCount> channels_;
};

} // namespace fsdpc::rt
