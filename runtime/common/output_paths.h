// What a run writes must not be what it reads.
#pragma once

#include "runtime/common/options.h"

#include <string>

namespace fsdpc::rt {

/// Throws Failure{usage} where a file that an option writes is data or weights that the run reads, a file of the
/// program's own folder that the next run needs, or what another option writes. --save_model may replace --load_model.
void requireOutputsApart(const ProgramInfo &program, const Options &options, const std::string &outDirectory);

} // namespace fsdpc::rt
