#include "frontend/driver/step_times.h"

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
    for (const TimelineCollective &collective : function.collectives) {
      const bool runsInNextStep = origin + collective.beginMicroseconds >= timeline.stepMicroseconds;
      const double runs = runsInNextStep ? origin - timeline.stepMicroseconds : origin;
      collectives[collective.start] = {runs + collective.beginMicroseconds, runs + collective.endMicroseconds};
      collectiveOfStart[collective.start] = &collective;
      last = std::max(last, runs + collective.endMicroseconds);
      if (!collective.wait)
        continue;
      collectiveOfWait[collective.wait] = &collective;
      // Not what is exposed of this collective: inline, a wait also runs those ahead of it. What is left to the next
      // step is shown where this one waits for what the step before left.
      const bool inNextStep = waitsForStepBefore(*collective.wait, *collective.start);
      const double shown = inNextStep ? origin - timeline.stepMicroseconds : origin;
      const double reached = shown + collective.waitMicroseconds;
      compute[collective.wait] = {reached, std::max(reached, shown + collective.endMicroseconds)};
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

} // namespace fsdpc
