// The cost of the memory plan: bytes per class at the peak, the buffers that are live there, and a lower bound for any
// plan.
#pragma once

#include "passes/plan/live_ranges.h"
#include <array>

namespace fsdpc {

struct LiveValue {
  std::string value;
  int64_t bytes = 0;
};

struct MemoryReport {
  int64_t totalBytes = 0;                             ///< all arenas of one rank's device, as mapped
  int64_t predictBytes = 0;                           ///< the same for a run that predicts
  int64_t hostBytes = 0;                              ///< the arena in the host's memory
  int64_t hostLinkBytes = 0;                          ///< besides, if the ranks live on several hosts
  int64_t liveAtPeakBytes = 0;                        ///< sum over the buffers that live at the peak
  std::array<int64_t, memoryClassCount> byClass = {}; ///< at the peak; sums to liveAtPeakBytes
  std::string peakFunction, peakNode, peakUnit;
  std::vector<LiveValue> peakLive; ///< largest first
  int64_t theoreticalMinBytes = 0; ///< state + two largest gathered units + largest unit's gradients +
                                   ///< saved unit inputs + largest unit's live values
};

/// Requires stage planned.
MemoryReport reportMemory(const Module &module, const Target &target);

/// Prints the report as a table.
void printMemoryReport(const MemoryReport &report, llvm::raw_ostream &out);

} // namespace fsdpc
