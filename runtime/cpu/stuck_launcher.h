// mpirun and its daemons wait for hosts that they do not reach any more, with Open MPI 4's defaults for eight minutes
// (oob_tcp_keepalive_time, _intvl, _probes). A run that has ended should not look alive for that long.
#pragma once

namespace fsdpc::rt {

/// Kills the parent of this process (SIGTERM crashes an mpirun that is already ending a run), if it is Open MPI's
/// launcher and still runs after `seconds`. Returns at once; a small process of its own waits, which holds no file of
/// this one. Called when this process ends the run.
void killLauncherAfter(unsigned seconds);

} // namespace fsdpc::rt
