// Collectives through the MPI library alone: between hosts, or when the program was compiled with `--transport mpi`.
//
// all_gather is MPI's, from the shard straight into the destination. reduce_scatter is an all-to-all into planned
// staging, all_reduce an all-gather into planned staging; the sum is then this program's own tree (tree_sum.h), so its
// bits are those of the shared path. MPI's own reductions are not used: their order is the library's choice.
//
// Each pair of channel and mesh axis has an MPI handle of its own, split off once at start: a channel's stream runs its
// collectives in one order on every rank, so those on one handle match, and two streams never share one.
//
// MPI is called on the streams only. When the body has run, MPI has sent the operand away, so its memory is free:
// `wait` has nothing more to wait for.
#pragma once

#include "runtime/cpu/communicator.h"
#include "runtime/cpu/mpi_roll_call.h"

#include "runtime/cpu/mpi_library.h"

#include <optional>
#include <vector>

namespace fsdpc::rt {

class MpiCommunicator final : public Communicator {
public:
  /// One message of MPI counts in `int`; longer ones go in pieces of this size.
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

  /// What the collectives of one channel use.
  struct ChannelHandles {
    MPI_Comm all = MPI_COMM_NULL;
    std::vector<MPI_Comm> axes; ///< this rank's group, by index of ProgramInfo::axes
    std::optional<RollCall> rollCall;
    std::uint64_t arrival[2] = {}; ///< MPI may write here as long as an arrival is outstanding
  };

  void openChannel(ChannelHandles &channel, MPI_Comm communicator);
  ChannelHandles &channelFor(const CollectiveRequest &request) {
    return channels_[static_cast<std::size_t>(request.channel)];
  }
  MPI_Comm handleFor(const CollectiveRequest &request);
  /// Returns when every member is there; throws Failure{disagreement} if one is there for another collective.
  void awaitArrival(const CollectiveRequest &request);
  [[noreturn]] void disagree(const CollectiveRequest &request);
  /// Member m's block (`bytes`: its operand, or the part of it meant for this rank) lands at `to` + m x bytes.
  void exchange(Exchange kind, const CollectiveRequest &request, std::byte *to, std::int64_t bytes);
  void exchangePiece(Exchange kind, const CollectiveRequest &request, std::byte *to, std::int64_t blockBytes,
                     std::int64_t offsetBytes, int bytes);
  void sumStaging(const CollectiveRequest &request) const;
  /// Drives MPI until the operation has completed. `moving`: every rank is there and data flows, which it only does
  /// while MPI is called; otherwise the wait may be long, and sleeps.
  void complete(MPI_Request operation, const CollectiveRequest &request, bool moving);
  void lookAround(const CollectiveRequest &request, Clock::time_point since);
  [[noreturn]] void failLate(const CollectiveRequest &request);

  int missingRank(const CollectiveRequest &request, const std::vector<bool> &present) const;

  std::int64_t pieceBytes_;
  std::array<ChannelHandles, channelCount> channels_;
};

} // namespace fsdpc::rt
