// Distributes work over the compute threads of a rank.
//
// The pool is OpenMP's. oneDNN uses it too, so the two never compete for cores. With one thread everything is a plain
// call. The result of a kernel must not depend on the number of threads: parts share no accumulators.
#pragma once

#include "runtime/common/program.h"

#include <algorithm>

namespace fsdpc::rt {

/// Calls run(data, part) for every part in [0, parts), at most `threads` at a time. Returns when all are done.
void runParts(int threads, std::int64_t parts, void (*run)(const void *data, std::int64_t part), const void *data);

/// Calls body(begin, end) on disjoint ranges that cover [0, count). The length of every range but the last is a
/// multiple of `grain`. A count of up to `grain` is one call on this thread.
template <class Body>
void parallelFor(const Context &c, std::int64_t count, std::int64_t grain, const Body &body) {
  if (count <= 0)
    return;
  if (c.threads <= 1 || count <= grain)
    return body(std::int64_t{0}, count);
  const std::int64_t grains = (count + grain - 1) / grain;
  const std::int64_t parts = std::min<std::int64_t>(grains, c.threads);
  struct Work {
    const Body &body;
    std::int64_t count, grain, grains, parts;
  } const work{body, count, grain, grains, parts};
  runParts(
      c.threads, parts,
      [](const void *data, std::int64_t part) {
        const Work &w = *static_cast<const Work *>(data);
        const std::int64_t begin = w.grains * part / w.parts * w.grain;
        const std::int64_t end = std::min(w.count, w.grains * (part + 1) / w.parts * w.grain);
        w.body(begin, end);
      },
      &work);
}

/// Sets the number of threads that oneDNN may use for primitives created and run from now on.
void setLibraryThreads(int threads);

} // namespace fsdpc::rt
