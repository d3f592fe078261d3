#include "runtime/cuda/launch_environment.h"

#include "runtime/common/failure.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <unistd.h>

namespace fsdpc::rt {
namespace {

/// Names of one launcher's variables. Later ones may be null: not told.
struct Convention {
  const char *rank, *worldSize, *localRank;
  const char *job; ///< names the job among those of this host
};

// torchrun goes first: it may itself have been started by srun.
constexpr Convention conventions[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", nullptr},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_NAMESPACE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_PORT"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID"},
};

constexpr int defaultPort = 29500;

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

MeetingPoint pointFrom(const std::string &text) {
  if (text.rfind("file:", 0) == 0)
    return {"", 0, text.substr(5)};
  const std::size_t colon = text.rfind(':');
  int port = 0;
  if (colon != std::string::npos)
    std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
  if (port <= 0 || port > 65535)
    fail("FSDPC_RENDEZVOUS=" + text + ": host:port or file:PATH is expected");
  return {text.substr(0, colon), port, ""};
}

/// The first host of a list as Slurm writes it: node[012-015,20],other -> node012.
std::string firstHost(const std::string &list) {
  const std::size_t bracket = list.find_first_of("[,");
  if (bracket == std::string::npos || list[bracket] == ',')
    return list.substr(0, bracket);
  const std::size_t end = list.find_first_of("-,]", bracket);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

MeetingPoint meetingPointOf(const Convention &convention) {
  if (const char *text = std::getenv("FSDPC_RENDEZVOUS"))
    return pointFrom(text);
  // torchrun may hold a store of its own on MASTER_PORT.
  if (const char *host = std::getenv("MASTER_ADDR"))
    return {host, integerOf("MASTER_PORT").value_or(defaultPort) + 1, ""};
  const std::string job = convention.job && std::getenv(convention.job) ? std::getenv(convention.job) : "";
  if (const char *hosts = std::getenv("SLURM_NODELIST"); hosts && !job.empty()) {
    // Lightning's rule: the last four digits of the job number.
    const int number = std::atoi(job.substr(job.size() > 4 ? job.size() - 4 : 0).c_str());
    return {firstHost(hosts), 15000 + number, ""};
  }
  if (!job.empty() && job.find('/') == std::string::npos)
    return {"", 0, "/tmp/fsdpc-" + std::to_string(::getuid()) + "-" + job + ".rendezvous"};
  fail("the ranks do not know where to meet: set MASTER_ADDR, or FSDPC_RENDEZVOUS to host:port or file:PATH");
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
    LaunchEnvironment environment{*rank, *size, integerOf(convention.localRank).value_or(*rank), {}};
    if (*size > 1)
      environment.meetingPoint = meetingPointOf(convention);
    return environment;
  }
  return {};
}

} // namespace fsdpc::rt
