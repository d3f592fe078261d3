// --memory_budget: refuses a plan over it, and reports the values that live at its peak and the changes that would
// help.
#pragma once

#include "frontend/compilation/compilation.h"

namespace fsdpc {

/// Returns an error if the planned module needs more than the budget in `values`. Helpful changes are found by planning
/// the model of `input` with other options, not guessed.
llvm::Error checkMemoryBudget(const Compilation &compilation, const OptionValues &values, llvm::StringRef input);

} // namespace fsdpc
