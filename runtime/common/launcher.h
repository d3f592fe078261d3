// The process that started this rank: mpirun or its daemon on this host, slurmstepd, the torchrun agent.
//
// Launchers end their ranks when one of them ends; when the launcher itself is killed, nobody ends the ranks. So a rank
// ends with its parent. Under ssh or srun that is the daemon on the rank's own host, which ends, and with it the rank,
// when it loses the launcher. A program between launcher and rank that outlives the launcher hides this: a script
// should `exec` the program.
#pragma once

#include <optional>
#include <sys/types.h>

namespace fsdpc::rt {

/// This process's rank as a launcher tells it, before the ranks are joined; none if the program was started alone.
std::optional<int> launcherRank();

class Launcher {
public:
  /// Asks the kernel to kill this process, also a stopped one, when its parent ends; only where the parent's main
  /// thread is what started it, because the kernel looks at that thread. Does nothing for a program started alone,
  /// whose terminal may be closed.
  static Launcher watched();

  bool isKnown() const { return parent_.has_value(); }
  /// Whether the parent has ended.
  bool isGone() const;

private:
  std::optional<pid_t> parent_;
};

} // namespace fsdpc::rt
