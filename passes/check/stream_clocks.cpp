#include "passes/check/stream_clocks.h"

#include <algorithm>

namespace fsdpc::check {

CollectiveIndex StreamClocks::startCollective(Moment after) {
  // Whatever a collective has waited for, those behind it have waited for as well.
  seenByComm = std::max(seenByComm, after);
  seen.push_back(seenByComm);
  return static_cast<CollectiveIndex>(seen.size()) - 1;
}

void StreamClocks::waitFor(CollectiveIndex collective) { ended = std::max(ended, collective); }

} // namespace fsdpc::check
