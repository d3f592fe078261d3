// Names the rank that the others wait for.
//
// All ranks take the same time for a step, because they wait for each other. A slow one is seen by the time in which it
// does not wait. The ranks compare that time with every line of the log.
#pragma once

#include "runtime/common/job.h"

#include <vector>

namespace fsdpc::rt {

class Stragglers {
public:
  explicit Stragglers(const Job &job);

  /// Collective, between steps. `busyMicroseconds`: the mean time of a step without waiting, on this rank. A rank that
  /// is busy for half as long again as most, and by five milliseconds, three times in a row, becomes a line `straggler`
  /// of the log, and once for each rank a warning on stderr.
  void look(std::int64_t step, double busyMicroseconds);

  /// Adds the times of the last look by rank, `rank_busy_ms`, to a line of the log of rank 0; of at most 64 ranks.
  void addTo(JsonObject &line) const;

private:
  void report(std::int64_t step, int rank, double busyMicroseconds, double usualMicroseconds);

  const Job &job;
  std::vector<double> busy, sorted; ///< by rank; on rank 0
  std::vector<bool> warned;
  int suspect = -1; ///< the slowest rank of the last look
  int looks = 0;    ///< in a row in which it was too slow
};

} // namespace fsdpc::rt
