// What --memory_budget leaves open is found by planning: how much of forward is kept (--activation_checkpointing
// budget), and how little goes to the host (--offload_params, --offload_optimizer, --offload_activations).
#pragma once

#include "frontend/search/estimate.h"

namespace fsdpc {

/// Is a share to be found, because neither the command line nor a config says it?
bool searchesShares(const Candidate &plan);

/// Sets keptShare to the largest share that is kept, and offloadShare to the smallest one that goes, with which the
/// plan of `model` is within --memory_budget, in steps of 1/64 and 1/16; to 0 and 1 if none is. Where both are open,
/// the pair with the shortest predicted step of those with 0, 1/4, 1/2, 3/4 or all that may go on the host. Plans are
/// made, not guessed: eight for a share at most.
llvm::Error settleShares(const Estimator &model, Candidate &plan);

} // namespace fsdpc
