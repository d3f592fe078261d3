#include "runtime/common/parallel.h"

#ifdef _OPENMP
#include <omp.h>
#else
// oneDNN links the OpenMP runtime, so the number of its threads must be set in any build.
extern "C" [[gnu::weak]] void omp_set_num_threads(int);
#endif

namespace fsdpc::rt {

#ifdef _OPENMP

void runParts(int threads, std::int64_t parts, void (*run)(const void *, std::int64_t), const void *data) {
#pragma omp parallel for schedule(static, 1) num_threads(threads)
  for (std::int64_t part = 0; part < parts; ++part)
    run(data, part);
}

void setLibraryThreads(int threads) { omp_set_num_threads(threads); }

#else // without OpenMP the runtime's own loops use one thread

void runParts(int, std::int64_t parts, void (*run)(const void *, std::int64_t), const void *data) {
  for (std::int64_t part = 0; part < parts; ++part)
    run(data, part);
}

void setLibraryThreads(int threads) {
  if (omp_set_num_threads)
    omp_set_num_threads(threads);
}

#endif

} // namespace fsdpc::rt
