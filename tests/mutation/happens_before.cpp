#include "tests/mutation/happens_before.h"

#include <algorithm>

namespace fsdpc::mutation {

void HappensBefore::await(size_t actor, const Clock &clock) {
  for (size_t i = 0; i < clock.size(); ++i)
    clocks[actor][i] = std::max(clocks[actor][i], clock[i]);
}

const Clock &HappensBefore::end() {
  ++clocks[current][current];
  return clocks[current];
}

bool HappensBefore::isOrdered(const Access &earlier) const {
  return earlier.actor == current || earlier.operation <= clocks[current][earlier.actor];
}

void HappensBefore::access(size_t memory, int64_t offset, int64_t bytes, bool writes) {
  const Access whole = {offset, offset + bytes, current, clocks[current][current] + 1, writes};
  for (int64_t begin = whole.begin; begin < whole.end; begin = (begin / blockBytes + 1) * blockBytes) {
    Access part = whole;
    part.begin = begin;
    part.end = std::min(whole.end, (begin / blockBytes + 1) * blockBytes);
    accessIn(memories[memory][begin / blockBytes], part);
  }
}

void HappensBefore::accessIn(Block &block, const Access &access) {
  auto isOver = [&](const Access &earlier) {
    if (earlier.begin >= access.end || access.begin >= earlier.end || !(access.writes || earlier.writes))
      return false;
    if (!isOrdered(earlier))
      raceSeen = true;
    // Everything ordered after this write is ordered after the accesses that it covers.
    return access.writes && access.begin <= earlier.begin && earlier.end <= access.end;
  };
  std::erase_if(block, isOver);
  block.push_back(access);
}

} // namespace fsdpc::mutation
