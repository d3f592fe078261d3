// The machine that a compile is for, as `--hardware` names it.
#pragma once

#include "frontend/options/option_schema.h"
#include "passes/cost/cost_model.h"

namespace fsdpc {

/// What is decided by costs must not depend on a measurement that nobody named: with `--hardware auto` passes see the
/// built-in table, and only predictions read what `fsdpc calibrate` measured. A table that is named serves both.
struct Machine {
  CostModel deciding;
  CostModel predicting;
};

/// Where this machine's table lies: `hardware-<key>.json` in $FSDPC_CACHE, $XDG_CACHE_HOME/fsdpc or ~/.cache/fsdpc. The
/// key stands for host name, processor and cores.
std::string calibrationPath();

/// Requires that `threads` and `world_size` are resolved. Errors name the file, or list the built-in tables.
llvm::Expected<Machine> machineOf(const OptionValues &values);

/// Collectives run on the compute thread: as asked for, or where there are not more cores than ranks.
bool collectivesRunInline(const OptionValues &values);

} // namespace fsdpc
