#include "frontend/report/step_times.h"

#include "ir/carried.h"

namespace fsdpc {

StepTimes::StepTimes(const Timeline &timeline) {
  for (const FunctionTimeline &function : timeline.functions) {
    if (function.callsPerStep == 0)
      continue;
    const double origin = microseconds;
    for (const TimelineNode &node : function.nodes)
      compute[node.node] = {origin + node.beginMicroseconds, origin + node.endMicroseconds};
    double last = origin;
    for (const std::vector<TimelineCollective> *started : {&function.collectives, &function.copies})
      for (const TimelineCollective &transfer : *started) {
        place(transfer, origin, timeline.stepMicroseconds);
        last = std::max(last, transfers.lookup(transfer.start).end);
      }
    double now = origin;
    for (const Node *node : *function.function) {
      auto [entry, isNew] = compute.try_emplace(node, TimeSpan{now, now});
      now = entry->second.end;
    }
    microseconds = origin + function.microseconds;
    functions.push_back({&function, {origin, std::max(microseconds, last)}});
  }
}

void StepTimes::place(const TimelineCollective &transfer, double origin, double step) {
  const bool runsInNextStep = origin + transfer.beginMicroseconds >= step;
  const double runs = runsInNextStep ? origin - step : origin;
  transfers[transfer.start] = {runs + transfer.beginMicroseconds, runs + transfer.endMicroseconds};
  transferOfStart[transfer.start] = &transfer;
  if (!transfer.wait)
    return;
  transferOfWait[transfer.wait] = &transfer;
  // The exposed time would be wrong here: inline, a wait also runs the transfers queued before it. A transfer left to
  // the next step is shown where this step waits for the one of the previous step.
  const bool inNextStep = waitsForStepBefore(*transfer.wait, *transfer.start);
  const double shown = inNextStep ? origin - step : origin;
  const double reached = shown + transfer.waitMicroseconds;
  compute[transfer.wait] = {reached, std::max(reached, shown + transfer.endMicroseconds)};
}

} // namespace fsdpc
