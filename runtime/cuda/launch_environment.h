// Which rank this process is and where the others meet, as the launcher's environment says it: torchrun, mpirun (Open
// MPI, MPICH, Intel MPI; without linking MPI), srun, or none.
#pragma once

#include <string>

namespace fsdpc::rt {

/// How the ranks find each other. With an address rank 0 listens there; with a file it listens on a free port of its
/// own host and writes host and port into the file, which the others wait for.
struct MeetingPoint {
  std::string host;
  int port = 0;
  std::string file; ///< takes precedence if not empty
};

struct LaunchEnvironment {
  int rank = 0;
  int worldSize = 1;
  int localRank = 0; ///< among the ranks of this host
  MeetingPoint meetingPoint;
};

/// Where to meet is, in this order: FSDPC_RENDEZVOUS (host:port or file:PATH); MASTER_ADDR, on the port after
/// MASTER_PORT; inside a Slurm allocation its first host, on a port that follows from the job; a file of this host
/// named after the job. Throws Failure{device} for an environment that contradicts itself or names no place.
LaunchEnvironment launchEnvironment();

} // namespace fsdpc::rt
