// --activation_checkpointing budget under --memory_budget: the largest share of activations whose plan fits.
#pragma once

#include "frontend/driver/estimate.h"

namespace fsdpc {

/// Is the share to be found, because neither the command line nor a config says it?
bool searchesActivationBudget(const OptionValues &values);

/// Resolves activation_memory_budget to the largest multiple of 1/64 with which the plan of `model` is within
/// --memory_budget; 0 if none is. Plans are made, not guessed: eight at most, since a smaller share never keeps more.
llvm::Error settleActivationBudget(const Estimator &model, OptionValues &values);

} // namespace fsdpc
