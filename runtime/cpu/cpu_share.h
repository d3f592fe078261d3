// The cores that this rank computes on.
//
// Open MPI binds ranks by default, two ranks to one core each and more ranks to a socket, which leaves worker threads
// no core. Unless the user chose a binding (`--bind-to`), a rank undoes the launcher's binding and then takes an equal
// share of the cores. Hardware threads of one core stay together.
#pragma once

#include "runtime/cpu/mpi_library.h"

namespace fsdpc::rt {

struct CpuShare {
  int hostCores = 1;           ///< hardware threads available to all ranks of this job on this host
  int rankCores = 1;           ///< the number that one rank should use, at least 1
  bool oversubscribed = false; ///< more ranks than hostCores
};

/// Binds this rank and all threads it starts later to its share, if every rank gets at least one core and `threads` (0:
/// as many as fit) fit into the share. Collective over `host`, the ranks of this host.
CpuShare takeCpuShare(MPI_Comm host, int threads);

} // namespace fsdpc::rt
