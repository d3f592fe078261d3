// The window arenas of the ranks of one host, mapped into each other.
#pragma once

#include "runtime/cpu/arena.h"
#include "runtime/cpu/mpi_library.h"
#include "runtime/cpu/shared_communicator.h"

#include <functional>
#include <vector>

namespace fsdpc::rt {

/// Runs `attempt` on every rank of the communicator. If it threw a Failure on some, throws that of the lowest of these
/// ranks on every rank, with everyRank and speakingRank set. `communicator` numbers the ranks as the world does.
void attemptTogether(MPI_Comm communicator, const std::function<void()> &attempt);

struct SharedWindows {
  Arena own;
  std::vector<Arena> peers; ///< read only; empty at this rank's place
  Arena control;            ///< holds the control block; not part of the plan

  std::vector<const std::byte *> addresses() const;
  ControlBlock &controlBlock() const { return *ControlBlock::at(control.data()); }
};

/// Gives every rank of `host` a window of `windowBytes` whose memory is there (WindowStore), and maps all of them into
/// all. Tries anonymous memory first, then files in /dev/shm, $TMPDIR and /tmp; with FSDPC_WINDOW_DIRECTORY in rank 0's
/// environment only files there. Throws Failure{memory} on every rank if none has room.
SharedWindows openSharedWindows(MPI_Comm host, std::int64_t windowBytes);

/// `bytes` zero bytes that every rank of `host` maps and writes, from the same stores. Throws likewise.
Arena openSharedPage(MPI_Comm host, std::int64_t bytes);

} // namespace fsdpc::rt
