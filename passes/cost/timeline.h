// The predicted step: when every node runs, on which stream, and what delays every collective (algorithm:
// simulate.cpp). Times are microseconds from the start of the function.
#pragma once

#include "ir/module.h"
#include "passes/cost/cost_model.h"

namespace fsdpc {

/// A node that takes time on the compute stream.
struct TimelineNode {
  const Node *node = nullptr;
  double beginMicroseconds = 0;
  double endMicroseconds = 0;
};

/// The constraint on the beginning of a collective that was satisfied last.
enum class StartReason : uint8_t {
  none,          ///< it begins with the function
  dependency,    ///< its operand had to be computed
  memory,        ///< memory of its result had to be freed
  inflightBound, ///< the maximum of gathered units was reached
  order,         ///< a collective ahead of it, or its position in the schedule
};
llvm::StringRef nameOf(StartReason reason); // "none", "dependency", "memory", "in-flight bound", "order"

/// One collective, or copy between device and host, from start to wait.
struct TimelineCollective {
  const Node *start = nullptr;
  const Node *wait = nullptr;    ///< null if the function does not wait for it
  double issuedMicroseconds = 0; ///< the compute stream reached the start
  double beginMicroseconds = 0;  ///< the body runs
  double endMicroseconds = 0;
  double waitMicroseconds = 0;    ///< the compute stream reached the wait (after this function's end if in a later one)
  double exposedMicroseconds = 0; ///< the time that the compute stream stalled for it
  StartReason reason = StartReason::none;
  const Node *blocker = nullptr;     ///< the node that the reason names: producer, free, collective ahead; may be null
  bool runsInline = false;           ///< on the compute thread, in the wait for the blocker
  std::vector<int32_t> hiddenBehind; ///< units that computed in the meantime, in order (Module::units)
};

struct FunctionTimeline {
  const Function *function = nullptr;
  int64_t callsPerStep = 0;     ///< 0: not part of a training step (evaluation, export)
  double beginMicroseconds = 0; ///< relative to the step
  std::vector<TimelineNode> nodes;
  std::vector<TimelineCollective> collectives; ///< in program order of their starts
  std::vector<TimelineCollective> copies;      ///< likewise
  double microseconds = 0;                     ///< when the compute stream is done
  double exposedMicroseconds = 0;
  double communicationMicroseconds = 0; ///< all bodies
  double copyExposedMicroseconds = 0;
};

struct Timeline {
  std::vector<FunctionTimeline> functions; ///< in the module's order
  double stepMicroseconds = 0;             ///< of one training step: functions times their calls
  double exposedMicroseconds = 0;          ///< of one training step
  double communicationMicroseconds = 0;    ///< of one training step
  double copyExposedMicroseconds = 0;      ///< of one training step: time that compute stalled for copies
};

/// Requires stage async or planned.
Timeline simulate(const Module &planned, const CostModel &model);

/// "memory: free %fc1.p.full of fc1" for display and plan.json: the reason and the node that it names.
std::string whyNotEarlier(const TimelineCollective &collective);
/// "all_gather 3 of fc2": op, id and unit of a collective's start.
std::string collectiveText(const Node &start);
/// "reload %fc1.p of fc1": a copy between the device and its host.
std::string copyText(const Node &start);
/// The text of either kind of start.
std::string transferText(const Node &start);
/// Comma-separated names of the units that hide it.
std::string hiddenBehindText(const TimelineCollective &collective);

} // namespace fsdpc
