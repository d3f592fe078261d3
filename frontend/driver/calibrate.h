// `fsdpc calibrate`: measures this machine once and keeps its cost table.
#pragma once

#include "frontend/driver/option_schema.h"

namespace fsdpc {

/// Where this machine's table lies: `hardware-<key>.json` in $FSDPC_CACHE, $XDG_CACHE_HOME/fsdpc or ~/.cache/fsdpc. The
/// key stands for host name, processor and cores.
std::string calibrationPath();

/// Runs the calibration program on `--world_size` ranks (at least 2), fits the table and writes it to calibrationPath()
/// or `--output`.
llvm::Error calibrate(const OptionValues &values);

} // namespace fsdpc
