// --replica_check: finds a rank whose copy of replicated state has drifted.
//
// Ranks that hold the same part of a parameter, of its copy or of its optimizer state compute the same bits, so a
// difference is a fault of memory or of a computation on one of them. It would otherwise train on: under no_shard each
// rank's gradients are averaged, and the weights of the ranks differ ever more.
#pragma once

#include "runtime/common/held_state.h"
#include "runtime/common/job.h"

namespace fsdpc::rt {

class ReplicaCheck {
public:
  /// Calls no collective. Throws Failure{usage} on every rank if no state of this program is held by two ranks.
  explicit ReplicaCheck(const Job &job);

  /// Collective, between two steps. The first tensor with different bits becomes a Failure{disagreement} on every rank
  /// that names the tensor and the rank, or both ranks where there are only two. Costs one pass over this rank's state.
  void run(std::int64_t step);

private:
  void compare(const std::vector<std::uint64_t> &all, std::int64_t step) const;

  const Job &job;
  std::vector<HeldTensor> replicated;
};

} // namespace fsdpc::rt
