#include "runtime/cpu/lone_rank.h"

#include <cstdlib>

namespace fsdpc::rt {
namespace {

long numberIn(const char *name) {
  const char *text = std::getenv(name);
  return text ? std::strtol(text, nullptr, 10) : 0;
}

} // namespace

std::optional<std::string> whyAlone(const std::string &command) {
  if (const long ranks = numberIn("WORLD_SIZE"); std::getenv("RANK") && ranks > 1)
    return "torchrun, or a launcher like it, started " + std::to_string(ranks) +
           " processes (RANK, WORLD_SIZE), but programs of the cpu target are joined by MPI; type\n  mpirun -n " +
           std::to_string(ranks) + " " + command;
  if (const long ranks = numberIn("SLURM_STEP_NUM_TASKS"); std::getenv("SLURM_STEP_ID") && ranks > 1)
    return "srun started " + std::to_string(ranks) +
           " tasks, but MPI does not see them: this srun and this MPI library have no PMI in common (srun --mpi=list "
           "shows what it has); type\n  srun --mpi=pmix -n " +
           std::to_string(ranks) + " " + command + "\nor, in an allocation,\n  mpirun -n " + std::to_string(ranks) +
           " " + command;
  return std::nullopt;
}

bool isTaskWithoutPmi() {
  for (const char *name : {"PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_ID", "PMI_FD", "PMI_PORT", "PALS_RANKID",
                           "OMPI_COMM_WORLD_RANK"})
    if (std::getenv(name))
      return false;
  return std::getenv("SLURM_STEP_ID") != nullptr;
}

} // namespace fsdpc::rt
