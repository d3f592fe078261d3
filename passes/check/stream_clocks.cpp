#include "passes/check/stream_clocks.h"

#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace fsdpc::check {

Moment StreamClocks::enterFunction() {
  advance();
  seen.fill(current);
  return current;
}

CollectiveIndex StreamClocks::Waits::lastAt(Moment moment) const {
  auto behind = llvm::partition_point(waits, [&](const Wait &wait) { return wait.moment <= moment; });
  return behind == waits.begin() ? -1 : std::prev(behind)->collective;
}

EndedCollectives StreamClocks::endedAt(Moment moment) const {
  EndedCollectives ended;
  for (const Waits &group : waits)
    ended.on(group.stream) = std::max(ended.on(group.stream), group.lastAt(moment));
  return ended;
}

CollectiveIndex StreamClocks::startCollective(Stream stream, RankGroup group, Moment after,
                                              const EndedCollectives &operands) {
  // Everything that a collective has waited for, later ones on the stream have waited for too.
  size_t lane = laneOf(stream);
  seen[lane] = std::max(seen[lane], after);
  arrived[lane].join(operands);
  arrived[lane].join(endedAt(seen[lane]));
  Started next{stream, group, seen[lane], arrived[lane]};
  started.push_back(next);
  arrived[lane].on(stream) = static_cast<CollectiveIndex>(started.size()) - 1;
  return arrived[lane].on(stream);
}

void StreamClocks::waitFor(CollectiveIndex collective) {
  const Started &ended = started[collective];
  auto found = llvm::find_if(waits, [&](const Waits &w) { return w.stream == ended.stream && w.group == ended.group; });
  if (found == waits.end())
    found = waits.insert(waits.end(), {ended.stream, ended.group, {}});
  CollectiveIndex before = found->waits.empty() ? -1 : found->waits.back().collective;
  found->waits.push_back({current, std::max(before, collective)});
}

EndedCollectives StreamClocks::endOf(CollectiveIndex collective) const {
  EndedCollectives ended = started[collective].ended;
  ended.on(started[collective].stream) = collective;
  return ended;
}

bool StreamClocks::hasEnded(CollectiveIndex collective) const {
  return collective < 0 || endedAt(current).on(started[collective].stream) >= collective;
}

bool StreamClocks::isReleased(CollectiveIndex collective, Moment moment) const {
  const Started &reader = started[collective];
  return llvm::any_of(waits, [&](const Waits &group) {
    return group.stream == reader.stream && group.group.covers(reader.group) && group.lastAt(moment) >= collective;
  });
}

bool StreamClocks::begunAfterEnd(CollectiveIndex later, CollectiveIndex earlier) const {
  Stream stream = started[earlier].stream;
  return started[later].stream == stream ? earlier < later : started[later].ended.on(stream) >= earlier;
}

bool StreamClocks::releasesToo(CollectiveIndex later, CollectiveIndex earlier) const {
  return later >= earlier && started[later].stream == started[earlier].stream &&
         started[later].group.covers(started[earlier].group);
}

} // namespace fsdpc::check
