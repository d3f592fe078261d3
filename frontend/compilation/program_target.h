// What the program is for: the target that passes and the emitter ask.
#pragma once

#include "frontend/options/option_schema.h"
#include "ir/target.h"
#include "passes/cost/cost_model.h"
#include <memory>

namespace fsdpc {

/// What a program is for if nobody says it: "cuda" where the driver's `deviceNode` exists and this fsdpc builds such
/// programs, else "cpu". A machine may have a device and no compiler for it, and then no program would come out.
llvm::StringRef defaultTarget(llvm::StringRef deviceNode, bool buildsCuda);
/// Resolves `target`, and `threads` where it has any; an option of the other target is an error.
llvm::Error resolveTarget(OptionValues &values);
/// The resolved target, with costs of the machine that passes decide for.
std::unique_ptr<Target> makeTarget(const OptionValues &values, const CostModel &model);

} // namespace fsdpc
