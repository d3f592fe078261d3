// A launcher that MPI does not know starts every rank alone, and each would train the whole run by itself.
#pragma once

#include <optional>
#include <string>

namespace fsdpc::rt {

/// If this process is one of several according to its launcher's variables, although MPI sees it alone: what happened
/// and the line to type instead. `command`: the program and its arguments. nullopt if it was started alone.
/// Variables of torchrun: RANK, WORLD_SIZE (torch.distributed.run). Of srun: SLURM_STEP_ID, SLURM_STEP_NUM_TASKS (srun,
/// OUTPUT ENVIRONMENT VARIABLES).
std::optional<std::string> whyAlone(const std::string &command);

/// Whether srun started this process and no PMI connects it. MPI_Init of Open MPI 4 ends such a process with exit code
/// 1, unless it does not find SLURM_STEP_ID; then it starts alone.
bool isTaskWithoutPmi();

} // namespace fsdpc::rt
