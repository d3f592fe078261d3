// OUT/plan.json (schema fsdpc.plan/1, interface.md section 2) and the predicted timeline behind it.
#pragma once

#include "ir/module.h"
#include "ir/target.h"
#include "passes/plan/memory_report.h"

namespace fsdpc {

/// One collective of a function, in order of issue.
struct CollectiveTime {
  const Node *start = nullptr;
  const Node *wait = nullptr;
  double predictedMicroseconds = 0;
  double exposedMicroseconds = 0; ///< what the compute stream waits
  std::string hiddenBehind;       ///< units computed while it runs
};

struct StepPrediction {
  std::vector<CollectiveTime> collectives;
  double stepMicroseconds = 0; ///< prologue, micro_step and update
  double exposedMicroseconds = 0;
};

/// Two FIFO streams, compute and comm, with the target's costs. `inlineStreams`: collectives run on the compute stream.
StepPrediction predictStep(const Module &planned, const Target &target, bool inlineStreams);

std::string planJson(const Module &planned, const MemoryReport &memory, const StepPrediction &prediction);

} // namespace fsdpc
