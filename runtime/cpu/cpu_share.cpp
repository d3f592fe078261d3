#include "runtime/cpu/cpu_share.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sched.h>
#include <string>
#include <tuple>
#include <unistd.h>
#include <vector>

namespace fsdpc::rt {
namespace {

cpu_set_t affinityOf(pid_t process) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(process, sizeof set, &set);
  return set;
}

/// Open MPI passes on a binding that the user chose, but not one that it chooses itself.
bool boundByLauncherAlone() {
  return std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE") && !std::getenv("OMPI_MCA_hwloc_base_binding_policy");
}

int readTopology(int cpu, const char *name) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + name);
  int value = 0;
  file >> value;
  return value;
}

/// Sorted by socket, then by core. The hardware threads of a core are adjacent.
std::vector<int> inCoreOrder(const cpu_set_t &set) {
  std::vector<std::tuple<int, int, int>> order;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set))
      order.emplace_back(readTopology(cpu, "physical_package_id"), readTopology(cpu, "core_id"), cpu);
  std::sort(order.begin(), order.end());
  std::vector<int> cpus;
  for (const auto &[socket, core, cpu] : order)
    cpus.push_back(cpu);
  return cpus;
}

void bindTo(const std::vector<int> &cpus, std::size_t first, std::size_t last) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (std::size_t i = first; i < last; ++i)
    CPU_SET(cpus[i], &set);
  sched_setaffinity(0, sizeof set, &set);
}

} // namespace

CpuShare takeCpuShare(MPI_Comm host, int threads) {
  int rank, ranks;
  MPI_Comm_rank(host, &rank);
  MPI_Comm_size(host, &ranks);
  const bool mayBind = boundByLauncherAlone();
  cpu_set_t own = affinityOf(0);
  if (mayBind) {
    const cpu_set_t launcher = affinityOf(getppid());
    CPU_OR(&own, &own, &launcher);
  }
  cpu_set_t all;
  MPI_Allreduce(&own, &all, sizeof own, MPI_BYTE, MPI_BOR, host);

  CpuShare share;
  share.hostCores = std::max(1, CPU_COUNT(&all));
  share.oversubscribed = share.hostCores < ranks;
  const bool sharedByAll = CPU_EQUAL(&own, &all);
  share.rankCores = sharedByAll ? std::max(1, share.hostCores / ranks) : std::max(1, CPU_COUNT(&own));
  if (!mayBind)
    return share;
  const std::vector<int> cpus = inCoreOrder(own);
  const bool fits = sharedByAll && !share.oversubscribed && threads <= share.rankCores;
  if (fits)
    bindTo(cpus, cpus.size() * rank / ranks, cpus.size() * (rank + 1) / ranks);
  else
    bindTo(cpus, 0, cpus.size());
  return share;
}

} // namespace fsdpc::rt
