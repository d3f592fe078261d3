// --rerun_check: computes every step twice and compares the bits.
//
// A program computes the same bits on every run, so two results of one step that differ are a fault: of memory, of a
// processor, or of a kernel that is not deterministic. A third computation tells them apart. A fault that is the same
// each time is not found.
#pragma once

#include "runtime/common/held_state.h"
#include "runtime/common/job.h"
#include "runtime/common/step_outcome.h"

#include <functional>

namespace fsdpc::rt {

class RerunCheck {
public:
  /// Allocates a copy of this rank's state, which is outside the plan (`outside_plan_bytes`).
  explicit RerunCheck(const Job &job);

  /// Collective. Calls `compute` twice from the same state; it computes a step and returns its outcome. If results
  /// differ, calls it once more. If two of the three agree, their result stays, and the log and stderr say which tensor
  /// differed (`rerun_difference`); otherwise throws Failure{disagreement} on every rank.
  StepOutcome run(std::int64_t step, const std::function<StepOutcome()> &compute);

private:
  /// What one computation has left on this rank. A loss that is not finite may end a computation early.
  struct Result {
    std::vector<std::uint64_t> hashes; ///< of the tensors, then of the loss
    StepOutcome outcome;
    std::optional<Failure> failure;
  };

  void settle() const;
  Result computed(const std::function<StepOutcome()> &compute);
  Result computedAgain(const std::function<StepOutcome()> &compute);
  bool areEqual(const Result &a, const Result &b) const;
  std::string firstDifference(const Result &a, const Result &b) const;
  void report(std::int64_t step, const Result &a, const Result &b);
  StepOutcome outcomeOf(Result &result) const;

  const Job &job;
  std::vector<HeldTensor> tensors;
  std::vector<std::byte> saved;
};

} // namespace fsdpc::rt
