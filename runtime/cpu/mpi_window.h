// The window arenas of the ranks of one host. Every rank maps all of them.
#pragma once

#include "runtime/cpu/arena.h"
#include "runtime/cpu/mpi_library.h"
#include "runtime/cpu/shared_communicator.h"

#include <functional>
#include <vector>

namespace fsdpc::rt {

/// Runs `attempt` on every rank of the communicator. If it throws a Failure on some ranks, every rank throws that of
/// the lowest of them, with everyRank and reportingRank set. `communicator` numbers the ranks as the world does.
void attemptTogether(MPI_Comm communicator, const std::function<void()> &attempt);

struct SharedWindows {
  Arena own;
  std::vector<Arena> peers; ///< read only; empty at this rank's index
  Arena control;            ///< holds the control block; not part of the plan

  std::vector<const std::byte *> addresses() const;
  ControlBlock &controlBlock() const { return *ControlBlock::at(control.data()); }
};

/// Creates a window of `windowBytes` with reserved memory (WindowStore) for every rank of `host`, and a control block
/// for `controlRanks` ranks, and maps all of it into all ranks. Tries anonymous memory first, then files in /dev/shm,
/// $TMPDIR and /tmp; with FSDPC_WINDOW_DIRECTORY in rank 0's environment only files there. Throws Failure{memory} on
/// every rank if none has enough space.
SharedWindows openSharedWindows(MPI_Comm host, std::int64_t windowBytes, int controlRanks);

/// Creates `bytes` zero bytes that every rank of `host` maps and writes, in the same kinds of store. Throws likewise.
Arena openSharedPage(MPI_Comm host, std::int64_t bytes);

} // namespace fsdpc::rt
