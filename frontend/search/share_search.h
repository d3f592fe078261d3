// Finds the shares that --memory_budget leaves open, by planning: how much of forward is kept
// (--activation_checkpointing budget), and how little is offloaded to the host (--offload_params, --offload_optimizer,
// --offload_activations).
#pragma once

#include "frontend/search/estimate.h"

namespace fsdpc {

/// Returns whether a share has to be found, because neither the command line nor a config gives it.
bool searchesShares(const Candidate &plan);

/// Sets keptShare to the largest share that is kept, and offloadShare to the smallest one that is offloaded, with which
/// the plan of `model` is within --memory_budget, in steps of 1/64 and 1/16. Sets them to 0 and 1 if there is none. If
/// both are open, chooses the pair with the shortest predicted step among offload shares of 0, 1/4, 1/2, 3/4 and 1.
/// Plans are made, not guessed: at most eight per share.
llvm::Error settleShares(const Estimator &model, Candidate &plan);

} // namespace fsdpc
