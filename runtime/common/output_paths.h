// Checks that a run does not overwrite its own inputs.
#pragma once

#include "runtime/common/options.h"

#include <string>

namespace fsdpc::rt {

/// Throws Failure{usage} if an output file is also data or weights that the run reads, a file in the program's own
/// folder that the next run needs, or another output. --save_model may replace --load_model.
void requireSeparateOutputs(const ProgramInfo &program, const Options &options, const std::string &outDirectory);

} // namespace fsdpc::rt
