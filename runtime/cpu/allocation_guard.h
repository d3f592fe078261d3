// Proves that a step allocates nothing, in the test build (FSDPC_TEST_BUILD): the malloc family, mmap and mremap of
// this file replace those of the C library.
//
// Between stepBegins() and stepEnds() (runtime/common/step_guard.h) an allocation of `largeAllocationBytes` or more, on
// any thread of this process, ends it with a message and abort(). This covers the functions of a step, feeding it, and
// writing its line of the log. Smaller allocations (a library's bookkeeping) are counted; for the functions, stepEnds()
// prints nonzero counts on stderr. Allocations of MPI between hosts, inside an MpiScope, and of oneDNN, inside a
// MatmulScope, are counted and printed, but never fatal. Threads that a library started for itself before
// `leaveOutOtherThreads` (MPI's helpers) are excluded, and so is one that calls `leaveOutThisThread`.
//
// In other builds, and under AddressSanitizer (which has its own malloc), all of this does nothing.
#pragma once

#include "runtime/common/step_guard.h"

#include <cstddef>
#include <cstdint>

namespace fsdpc::rt {

inline constexpr std::size_t largeAllocationBytes = 4096;

struct AllocationCounts {
  std::int64_t small = 0; ///< by this program and its libraries, each below largeAllocationBytes
  std::int64_t smallBytes = 0;
  std::int64_t mpi = 0; ///< inside MpiScope, of any size
  std::int64_t mpiBytes = 0;
  std::int64_t matmuls = 0; ///< inside MatmulScope, of any size
  std::int64_t matmulBytes = 0;
};

#if FSDPC_ALLOCATION_GUARD

/// While one exists, allocations of its thread are counted as MPI's.
class MpiScope {
public:
  MpiScope();
  ~MpiScope();
  MpiScope(const MpiScope &) = delete;
  MpiScope &operator=(const MpiScope &) = delete;
};

/// While one exists, allocations are counted as oneDNN's. Its f32 matmuls for AVX2 allocate scratch on the heap in
/// every call, whatever scratchpad they get, and some convolutions generate code when they first run. No setting
/// disables either.
class MatmulScope {
public:
  MatmulScope();
  ~MatmulScope();
  MatmulScope(const MatmulScope &) = delete;
  MatmulScope &operator=(const MatmulScope &) = delete;
};

/// Counts of the current step, or of the last one.
AllocationCounts stepAllocations();

/// Excludes every thread that exists now, except the calling one.
void leaveOutOtherThreads();

#else

class MpiScope {
public:
  MpiScope() {}
  ~MpiScope() {}
};

class MatmulScope {
public:
  MatmulScope() {}
  ~MatmulScope() {}
};

inline AllocationCounts stepAllocations() { return {}; }
inline void leaveOutOtherThreads() {}

#endif

} // namespace fsdpc::rt
