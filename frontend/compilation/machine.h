// The machine that a compile is for, as `--hardware` names it.
#pragma once

#include "frontend/options/option_schema.h"
#include "passes/cost/cost_model.h"

namespace fsdpc {

/// Decisions based on costs must not depend on a measurement that the user did not name. With `--hardware auto` passes
/// use the built-in table, and only predictions use the measurements of `fsdpc calibrate`. A named table is used for
/// both.
struct Machine {
  CostModel deciding;
  CostModel predicting;
};

/// The path of this machine's table: `hardware-<key>.json` in cacheFolder(). The key stands for host name, processor
/// and cores. Empty if there is no such folder.
std::string calibrationPath();

/// Requires that `threads` and `world_size` are resolved. Errors name the file, or list the built-in tables.
llvm::Expected<Machine> machineOf(const OptionValues &values);

/// Returns whether collectives run on the compute thread: if requested, or if there are not more cores than ranks.
bool collectivesRunInline(const OptionValues &values);

} // namespace fsdpc
