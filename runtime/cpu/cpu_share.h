// Which cores this rank computes on.
//
// Open MPI binds ranks by default, two ranks to one core each and more ranks to a socket, which leaves worker threads
// no core. Unless the user chose a binding (`--bind-to`), a rank takes the launcher's cores back and then an equal
// share of them, hardware threads of one core together.
#pragma once

#include "runtime/cpu/mpi_library.h"

namespace fsdpc::rt {

struct CpuShare {
  int hostCores = 1;           ///< hardware threads that all ranks of this job have on this host
  int rankCores = 1;           ///< of these, what one rank should use: at least 1
  bool oversubscribed = false; ///< more ranks than hostCores
};

/// Binds this rank and all threads it starts later to its share, if there is one core or more for every rank and
/// `threads` (0: as many as fit) fit into it. Collective over `host`, the ranks of this host.
CpuShare takeCpuShare(MPI_Comm host, int threads);

} // namespace fsdpc::rt
