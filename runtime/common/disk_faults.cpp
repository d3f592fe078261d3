#include "runtime/common/disk_faults.h"

#include <cerrno>

#if defined(FSDPC_TEST_BUILD)
#include "runtime/common/launcher.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#endif

namespace fsdpc::rt {

bool DiskOperation::fails() const {
  if (error != 0)
    errno = error;
  return error != 0;
}

#if defined(FSDPC_TEST_BUILD)
namespace {

/// The fault of this process, from the environment.
struct Fault {
  long long moment = -1; ///< negative: none
  int error = 0;         ///< 0: a signal
  int signal = SIGKILL;

  Fault() {
    const char *text = std::getenv("FSDPC_DISK_FAULT");
    int rank = 0;
    char action[16] = "";
    if (!text || std::sscanf(text, "%d:%lld:%15s", &rank, &moment, action) != 3 || rank != launcherRank().value_or(0))
      moment = -1;
    else if (std::strcmp(action, "stop") == 0)
      signal = SIGSTOP;
    else
      error = std::atoi(action);
  }
};

std::atomic<long long> moments{0};

/// Returns the error that the fault demands at this moment.
int pass(const char *name, const char *when) {
  static const Fault fault;
  const long long moment = moments.fetch_add(1) + 1;
  if (fault.moment == 0)
    std::fprintf(stderr, "fsdpc: disk moment %lld: %s %s\n", moment, when, name);
  if (moment != fault.moment)
    return 0;
  if (fault.error == 0)
    std::raise(fault.signal);
  return fault.error;
}

} // namespace

DiskOperation::DiskOperation(const char *name) : name(name), error(pass(name, "before")) {}
DiskOperation::~DiskOperation() { pass(name, "after"); }

#else

DiskOperation::DiskOperation(const char *name) : name(name) {}
DiskOperation::~DiskOperation() = default;

#endif

} // namespace fsdpc::rt
