// The target of the program, which passes and the emitter query.
#pragma once

#include "frontend/options/option_schema.h"
#include "ir/target.h"
#include "passes/cost/cost_model.h"
#include <memory>

namespace fsdpc {

/// The target if none is given: "cuda" where the driver's `deviceNode` exists and this fsdpc builds such programs, else
/// "cpu". On a machine with a device but without a compiler for it, "cuda" would produce no program.
llvm::StringRef defaultTarget(llvm::StringRef deviceNode, bool buildsCuda);
/// Resolves `target`. An option of the other target that a file of another trainer set is taken back.
void chooseTarget(OptionValues &values);
/// The same, and resolves `threads` where the target has any. An option of the other target is an error.
llvm::Error resolveTarget(OptionValues &values);
/// The resolved target, with costs of the machine that passes decide for.
std::unique_ptr<Target> makeTarget(const OptionValues &values, const CostModel &model);

} // namespace fsdpc
