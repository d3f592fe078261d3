// Which types a unit's numbers are computed and sent in: what is said of the unit, else what the options say.
#pragma once

#include "ir/module.h"
#include "passes/options.h"

namespace fsdpc {

/// What nodes of the unit compute in. -1: of no unit.
DType paramDTypeOf(const Module &module, int32_t unit, const PipelineOptions &options);

/// What the gradients of the unit's f32 parameters are sent and summed over ranks in. f32 where one rank is all.
DType reduceDTypeOf(const Module &module, int32_t unit, const PipelineOptions &options);

} // namespace fsdpc
