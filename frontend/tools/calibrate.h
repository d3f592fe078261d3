// `fsdpc calibrate`: measures this machine once and keeps its cost table.
#pragma once

#include "frontend/options/option_schema.h"

namespace fsdpc {

/// Runs the calibration program on `--world_size` ranks (at least 2), fits the table and writes it to calibrationPath()
/// or `--output`.
llvm::Error calibrate(const OptionValues &values);

} // namespace fsdpc
