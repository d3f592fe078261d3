#include "runtime/common/launcher.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <sys/prctl.h>
#include <unistd.h>

namespace fsdpc::rt {
namespace {

/// Whether the main thread of `parent` started this process, rather than another thread of it.
bool isChildOfMainThread(pid_t parent) {
  const std::string id = std::to_string(parent);
  std::ifstream children("/proc/" + id + "/task/" + id + "/children");
  for (pid_t child; children >> child;)
    if (child == ::getpid())
      return true;
  return false;
}

} // namespace

std::optional<int> launcherRank() {
  for (const char *name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"})
    if (const char *text = std::getenv(name))
      return std::atoi(text);
  return std::nullopt;
}

Launcher Launcher::watched() {
  Launcher launcher;
  if (!launcherRank())
    return launcher;
  launcher.parent_ = ::getppid();
  if (isChildOfMainThread(*launcher.parent_))
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return launcher;
}

bool Launcher::isGone() const { return parent_ && ::getppid() != *parent_; }

} // namespace fsdpc::rt
