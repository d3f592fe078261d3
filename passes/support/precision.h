// The types that a unit computes and sends in: the unit's own setting, else the options'.
#pragma once

#include "ir/module.h"
#include "passes/options.h"

namespace fsdpc {

/// The compute type of the unit's nodes. unit -1: nodes without a unit.
DType paramDTypeOf(const Module &module, int32_t unit, const PipelineOptions &options);

/// The type in which the gradients of the unit's f32 parameters are sent and summed over ranks. f32 with a single rank.
DType reduceDTypeOf(const Module &module, int32_t unit, const PipelineOptions &options);

} // namespace fsdpc
