// The predicted timeline laid out as one training step: when the compute stream reaches each node, when each collective
// and each copy runs. OUT/schedule.html draws it, and the program writes it next to its measured trace.
#pragma once

#include "passes/cost/timeline.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc {

/// Microseconds from the start of the step.
struct TimeSpan {
  double begin = 0;
  double end = 0;
};

/// The functions of a step one after the other. A function that is called several times (micro-steps) appears once.
struct StepTimes {
  explicit StepTimes(const Timeline &timeline);

  /// A function of the step and its time span.
  struct Placed {
    const FunctionTimeline *function;
    TimeSpan span;
  };
  std::vector<Placed> functions;
  llvm::DenseMap<const Node *, TimeSpan> compute;   ///< every node of these functions; no time for most
  llvm::DenseMap<const Node *, TimeSpan> transfers; ///< collectives and copies by their starts
  llvm::DenseMap<const Node *, const TimelineCollective *> transferOfStart, transferOfWait;
  double microseconds = 0; ///< of all these functions

private:
  /// Places a transfer started by the function that begins at `origin`.
  void place(const TimelineCollective &transfer, double origin, double step);
};

} // namespace fsdpc
