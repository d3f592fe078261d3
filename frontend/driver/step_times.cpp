#include "frontend/driver/step_times.h"

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
      collectives[collective.start] = {origin + collective.beginMicroseconds, origin + collective.endMicroseconds};
      collectiveOfStart[collective.start] = &collective;
      last = std::max(last, origin + collective.endMicroseconds);
      if (!collective.wait)
        continue;
      collectiveOfWait[collective.wait] = &collective;
      // Not what is exposed of this collective: inline, a wait also runs those ahead of it.
      const double reached = origin + collective.waitMicroseconds;
      compute[collective.wait] = {reached, std::max(reached, origin + collective.endMicroseconds)};
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
