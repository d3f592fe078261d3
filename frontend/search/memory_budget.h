// --memory_budget: a plan over it is refused, with what lives at its peak and which changes would help.
#pragma once

#include "frontend/compilation/compilation.h"

namespace fsdpc {

/// Error if the planned module needs more than the budget in `values`. What would help is found by planning the model
/// of `input` with other options, not guessed.
llvm::Error checkMemoryBudget(const Compilation &compilation, const OptionValues &values, llvm::StringRef input);

} // namespace fsdpc
