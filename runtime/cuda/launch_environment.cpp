#include "runtime/cuda/launch_environment.h"

#include "runtime/common/failure.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <unistd.h>

namespace fsdpc::rt {
namespace {

/// Names of one launcher's variables. The later ones may be null: not provided.
struct Convention {
  const char *rank, *worldSize, *localRank;
  const char *job;          ///< identifies the job on this host
  bool isSlurmStep = false; ///< the launcher is srun itself: the ranks' hosts are those of its step
};

// torchrun is first: srun may have started it. Slurm is last: inside an allocation mpirun's ranks see the variables of
// the step or batch script in which mpirun runs.
constexpr Convention conventions[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", nullptr},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_NAMESPACE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_PORT"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID", true},
};

constexpr int defaultPort = 29500, maxPort = 65535;

[[noreturn]] void fail(const std::string &message) { throw Failure(ExitCode::device, message); }

std::optional<int> integerOf(const char *name) {
  const char *text = name ? std::getenv(name) : nullptr;
  if (!text)
    return std::nullopt;
  const std::string_view view(text);
  int value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value < 0)
    fail(std::string(name) + "=" + text + ": a number is expected");
  return value;
}

std::string valueOf(const char *name) {
  const char *text = name ? std::getenv(name) : nullptr;
  return text ? text : "";
}

/// "host:port" or "file:PATH"; an IPv6 address is in brackets.
RendezvousPoint pointFrom(const std::string &text) {
  if (text.rfind("file:", 0) == 0 && text.size() > 5)
    return {"", 0, text.substr(5)};
  const std::size_t colon = text.rfind(':');
  int port = 0;
  if (colon != std::string::npos && colon > 0) {
    const char *const end = text.data() + text.size();
    if (std::from_chars(text.data() + colon + 1, end, port).ptr != end)
      port = 0;
  }
  if (port <= 0 || port > maxPort)
    fail("FSDPC_RENDEZVOUS=" + text + ": host:port or file:PATH is expected");
  const bool isBracketed = text.front() == '[' && text[colon - 1] == ']';
  return {isBracketed ? text.substr(1, colon - 2) : text.substr(0, colon), port, ""};
}

/// torchrun may have its own store on MASTER_PORT, so the ranks meet on the next port.
RendezvousPoint nextToMaster(const std::string &host) {
  const int port = integerOf("MASTER_PORT").value_or(defaultPort);
  if (port < 1 || port + 1 > maxPort)
    fail("MASTER_PORT=" + std::to_string(port) + ": the port after it is to be one too");
  return {host, port + 1, ""};
}

/// The first host of a list in Slurm's notation: node[012-015,20],other -> node012.
std::string firstHost(const std::string &list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const std::size_t end = list.find_first_of("-,]", at);
    host += list.substr(at + 1, end - at - 1);
    at = list.find(']', at);
    if (at == std::string::npos)
      break;
  }
  return host;
}

/// One of ten thousand ports, so that jobs on one host rarely collide; FNV-1a.
int portOfJob(const std::string &job) {
  std::uint32_t hash = 2166136261u;
  for (const char character : job)
    hash = (hash ^ static_cast<unsigned char>(character)) * 16777619u;
  return 15000 + static_cast<int>(hash % 10000);
}

/// On the first host of a Slurm job or step, where rank 0 is; nothing outside Slurm.
std::optional<RendezvousPoint> inAllocation(const Convention &convention) {
  const std::string stepHosts = convention.isSlurmStep ? valueOf("SLURM_STEP_NODELIST") : "";
  const std::string hosts = stepHosts.empty() ? valueOf("SLURM_NODELIST") : stepHosts;
  const std::string ownJob = valueOf(convention.job), job = ownJob.empty() ? valueOf("SLURM_JOB_ID") : ownJob;
  if (hosts.empty() || job.empty())
    return std::nullopt;
  return RendezvousPoint{firstHost(hosts),
                         portOfJob(convention.isSlurmStep ? job + "." + valueOf("SLURM_STEP_ID") : job), ""};
}

RendezvousPoint rendezvousPointOf(const Convention &convention) {
  if (const char *text = std::getenv("FSDPC_RENDEZVOUS"))
    return pointFrom(text);
  if (const std::string host = valueOf("MASTER_ADDR"); !host.empty())
    return nextToMaster(host);
  if (const std::optional<RendezvousPoint> point = inAllocation(convention))
    return *point;
  if (const std::string job = valueOf(convention.job); !job.empty() && job.find('/') == std::string::npos)
    return {"", 0, "/tmp/fsdpc-" + std::to_string(::getuid()) + "-" + job + ".rendezvous"};
  fail("no rendezvous is configured: set MASTER_ADDR, or FSDPC_RENDEZVOUS to host:port or file:PATH");
}

/// If the launcher does not provide it, srun may: it has started this process if its rank is the same.
int localRankOf(const Convention &convention, int rank) {
  const std::optional<int> told = integerOf(convention.localRank);
  if (!told && integerOf("SLURM_PROCID") == rank)
    return integerOf("SLURM_LOCALID").value_or(rank);
  return told.value_or(rank);
}

} // namespace

LaunchEnvironment launchEnvironment() {
  for (const Convention &convention : conventions) {
    const std::optional<int> rank = integerOf(convention.rank), size = integerOf(convention.worldSize);
    if (!rank || !size)
      continue;
    if (*rank >= *size)
      fail(std::string(convention.rank) + "=" + std::to_string(*rank) + " is not below " + convention.worldSize + "=" +
           std::to_string(*size));
    LaunchEnvironment environment{*rank, *size, localRankOf(convention, *rank), {}};
    if (*size > 1)
      environment.rendezvousPoint = rendezvousPointOf(convention);
    return environment;
  }
  return {};
}

} // namespace fsdpc::rt
