#include "runtime/common/stragglers.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace fsdpc::rt {

Stragglers::Stragglers(const Job &job)
    : job(job), busy(job.context.rank == 0 ? static_cast<std::size_t>(job.program.worldSize) : 0), sorted(busy),
      warned(busy.size()) {}

void Stragglers::look(std::int64_t step, double busyMicroseconds) {
  job.platform.gatherToRoot(&busyMicroseconds, sizeof busyMicroseconds, busy.empty() ? nullptr : busy.data());
  if (busy.empty())
    return;
  sorted = busy;
  // Of two ranks, the faster one is the usual.
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  const auto slowest = std::max_element(busy.begin(), busy.end());
  // A rank that only lost its processor for a moment is another one the next time.
  constexpr double factor = 1.5, leastMicroseconds = 5000;
  constexpr int looksInARow = 3;
  const auto rank = static_cast<int>(slowest - busy.begin());
  const bool isSlow = *slowest > factor * *middle && *slowest > *middle + leastMicroseconds;
  looks = isSlow && rank == suspect ? looks + 1 : isSlow ? 1 : 0;
  suspect = rank;
  if (looks >= looksInARow)
    report(step, rank, *slowest, *middle);
}

void Stragglers::addTo(JsonObject &line) const {
  constexpr std::size_t mostRanks = 64; // a line for people and their plots, of a few hundred bytes
  if (busy.empty() || busy.size() > mostRanks)
    return;
  std::string times;
  for (const double microseconds : busy)
    times += (times.empty() ? "[" : ",") + jsonNumber(std::round(microseconds) / 1000);
  line.addRaw("rank_busy_ms", times + "]");
}

void Stragglers::report(std::int64_t step, int rank, double busyMicroseconds, double usualMicroseconds) {
  JsonObject line;
  line.add("step", step).add("rank", std::int64_t{rank}).add("busy_ms", busyMicroseconds * 1e-3);
  line.add("usual_ms", usualMicroseconds * 1e-3);
  job.log.write(JsonObject().addRaw("straggler", line.str()));
  if (warned[static_cast<std::size_t>(rank)])
    return;
  warned[static_cast<std::size_t>(rank)] = true;
  std::fprintf(stderr,
               "fsdpc: warning: the other ranks wait for rank %d: it computes %.1f ms in step %lld, they %.1f ms\n",
               rank, busyMicroseconds * 1e-3, static_cast<long long>(step), usualMicroseconds * 1e-3);
}

} // namespace fsdpc::rt
