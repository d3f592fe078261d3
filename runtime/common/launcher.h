// The process that started this rank: mpirun or its daemon on this host, slurmstepd, the torchrun agent.
//
// Launchers end their ranks when one of them ends. But when the launcher itself is killed, nothing ends the ranks. So a
// rank ends with its parent. Under ssh or srun the parent is the daemon on the rank's own host. It ends when it loses
// the launcher, and the rank ends with it. A program between launcher and rank that outlives the launcher hides this,
// so a script should `exec` the program.
#pragma once

#include <optional>
#include <sys/types.h>

namespace fsdpc::rt {

/// This process's rank as given by a launcher, before the ranks have joined; nullopt if the program was started alone.
std::optional<int> launcherRank();

class Launcher {
public:
  /// Asks the kernel to kill this process, even if stopped, when its parent ends. The kernel watches one thread of the
  /// parent, so this is done only if the parent's main thread started this process. Does nothing for a program started
  /// alone, whose terminal may be closed.
  static Launcher watched();

  bool isKnown() const { return parent_.has_value(); }
  /// Whether the parent has ended.
  bool isGone() const;

private:
  std::optional<pid_t> parent_;
};

} // namespace fsdpc::rt
