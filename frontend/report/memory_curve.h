// Bytes alive over the predicted step, and what is alive at the peak.
#pragma once

#include "frontend/report/step_times.h"
#include "passes/plan/live_ranges.h"

namespace fsdpc {

struct MemoryCurve {
  struct Point {
    double microseconds;
    int64_t bytes; ///< alive from then on; among points of one time the maximum is first
  };
  struct Live {
    std::string name;
    MemoryClass memoryClass;
    int64_t unit; ///< that made it; -1: none
    int64_t bytes;
  };
  std::vector<Point> points;
  int64_t permanentBytes = 0; ///< parameters, optimizer state, inputs: alive throughout
  /// The maximum over all functions of the module, including those that are not part of a step.
  int64_t peakBytes = 0;
  const Node *peakNode = nullptr;
  double peakMicroseconds = 0; ///< its time in the step
  bool peakInStep = false;
  std::vector<Live> live;                     ///< at the peak, largest first
  int64_t leftOutCount = 0, leftOutBytes = 0; ///< what `live` does not list
};

/// Requires stage planned.
MemoryCurve memoryCurve(const Module &planned, const Target &target, const StepTimes &times);

} // namespace fsdpc
