// This process's rank and the rendezvous of all ranks, from the launcher's environment: torchrun, mpirun (Open MPI,
// MPICH, Intel MPI; without linking MPI), srun, or none.
#pragma once

#include <string>

namespace fsdpc::rt {

/// How the ranks find each other. With an address, rank 0 listens there. With a file, it listens on a free port of its
/// own host and writes host and port into the file, for which the others wait.
struct RendezvousPoint {
  std::string host;
  int port = 0;
  std::string file; ///< takes precedence if not empty
};

struct LaunchEnvironment {
  int rank = 0;
  int worldSize = 1;
  int localRank = 0; ///< among the ranks of this host
  RendezvousPoint rendezvousPoint;
};

/// The rendezvous is the first of: FSDPC_RENDEZVOUS (host:port or file:PATH); MASTER_ADDR, on the port after
/// MASTER_PORT; inside a Slurm allocation, its first host, on a port derived from the job; a file on this host named
/// after the job. Throws Failure{device} for an environment that contradicts itself or names no rendezvous.
LaunchEnvironment launchEnvironment();

} // namespace fsdpc::rt
