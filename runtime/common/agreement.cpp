#include "runtime/common/agreement.h"

#include <optional>

namespace fsdpc::rt {

void agreed(Platform &platform, const std::function<void()> &work) {
  std::optional<Failure> mine;
  try {
    work();
  } catch (const Failure &failure) {
    mine = failure;
  }
  const int ranks = platform.worldSize();
  // The largest key belongs to the lowest failing rank; 0: none failed.
  const std::int64_t key = mine ? std::int64_t{ranks - platform.rank()} * 1000 + static_cast<int>(mine->code) : 0;
  const std::int64_t largest = platform.maxOverRanks(key);
  if (largest == 0)
    return;
  Failure shared = mine ? *mine : Failure(static_cast<ExitCode>(largest % 1000), "another rank failed");
  shared.everyRank = true;
  shared.speakingRank = ranks - static_cast<int>(largest / 1000);
  throw shared;
}

} // namespace fsdpc::rt
