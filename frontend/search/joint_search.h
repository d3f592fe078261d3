// --strategy auto: chooses strategy, recomputation, prefetch depth, buckets and accumulation together under
// --memory_budget.
//
// Every candidate is planned and simulated as a compile would do it, so its memory is the planner's figure and its time
// the simulator's. Nothing is estimated from a formula. Options on the command line are never changed.
#pragma once

#include "frontend/search/estimate.h"

namespace fsdpc {

/// One plan that was made.
struct SearchPoint {
  std::string choices; ///< as options: "--strategy full_shard --activation_checkpointing selective"
  Candidate plan;
  Estimate estimate;
};

struct JointSearch {
  std::vector<SearchPoint> points; ///< in the order in which they were made
  size_t winner = 0;               ///< the fastest that fits; if none does, the smallest
  bool fits = false;
};

/// Plans the candidates that are worth it. Requires a model of the graph stage.
///
/// Every strategy is tried without recomputation and, if that does not fit, with selective, full and budget. The
/// fastest plan that fits is then varied: units that stay gathered until backward (as many as fit), depth of prefetch,
/// buckets, a communicator for reductions, unsharded data kept between micro-steps. Errors: no --memory_budget, nothing
/// that can be planned.
llvm::Expected<JointSearch> searchJointly(const Estimator &model, const Candidate &asked);

/// The points that no other beats in both memory and time, and why the winner won.
void printSearch(const JointSearch &search, int64_t budgetBytes, llvm::raw_ostream &out);

} // namespace fsdpc
