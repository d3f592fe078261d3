// The proof that a step allocates nothing, in the test build (FSDPC_TEST_BUILD): this file's malloc family, mmap and
// mremap stand before the C library's.
//
// Between stepBegins() and stepEnds() (runtime/common/step_guard.h) an allocation of `largeAllocationBytes` or more, on
// any thread of this process, ends it with a message and abort(): in the functions of a step, while it is fed, and
// while its line of the log is written. Smaller ones (a library's bookkeeping) are counted; of the functions,
// stepEnds() prints the counts on stderr if there were any. What MPI allocates on the plain path, inside an MpiScope,
// and oneDNN inside a ProductScope, is counted and printed, never fatal. Threads that a library started for itself
// before `leaveOutOtherThreads` (MPI's helpers) are left out.
//
// In other builds, and under AddressSanitizer (which has a malloc of its own), all of this is nothing.
#pragma once

#include "runtime/common/step_guard.h"

#include <cstddef>
#include <cstdint>

#if defined(FSDPC_TEST_BUILD) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FSDPC_ALLOCATION_GUARD 1
#else
#define FSDPC_ALLOCATION_GUARD 0
#endif

namespace fsdpc::rt {

inline constexpr std::size_t largeAllocationBytes = 4096;

struct AllocationCounts {
  std::int64_t small = 0; ///< by this program and its libraries, each below largeAllocationBytes
  std::int64_t smallBytes = 0;
  std::int64_t mpi = 0; ///< inside MpiScope, of any size
  std::int64_t mpiBytes = 0;
  std::int64_t products = 0; ///< inside ProductScope, of any size
  std::int64_t productBytes = 0;
};

#if FSDPC_ALLOCATION_GUARD

/// While one exists, allocations of its thread are MPI's.
class MpiScope {
public:
  MpiScope();
  ~MpiScope();
  MpiScope(const MpiScope &) = delete;
  MpiScope &operator=(const MpiScope &) = delete;
};

/// While one exists, allocations are oneDNN's: its products of f32 for AVX2 take their scratch from the heap in every
/// call, whatever scratchpad they are given, some convolutions write their code when they first run, and there is no
/// setting against either.
class ProductScope {
public:
  ProductScope();
  ~ProductScope();
  ProductScope(const ProductScope &) = delete;
  ProductScope &operator=(const ProductScope &) = delete;
};

/// Counts of the step that runs, or of the last one.
AllocationCounts stepAllocations();

/// Every thread that exists now, except the calling one, is not looked at.
void leaveOutOtherThreads();

#else

class MpiScope {
public:
  MpiScope() {}
  ~MpiScope() {}
};

class ProductScope {
public:
  ProductScope() {}
  ~ProductScope() {}
};

inline AllocationCounts stepAllocations() { return {}; }
inline void leaveOutOtherThreads() {}

#endif

} // namespace fsdpc::rt
