// What the system says that this process has in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc::rt {

/// Mapped memory of this process.
struct MemoryRange {
  const void *begin = nullptr;
  std::int64_t bytes = 0;
};

/// The share of physical memory that is this process's: private pages whole, a page mapped by k processes 1/k
/// (`Pss` of /proc/self/smaps_rollup). Summed over the ranks of a host, shared windows count once. -1 if the kernel
/// does not tell.
std::int64_t readProportionalSetSizeBytes();

/// The same without what lies in `leftOut`: mappings that begin in one of these ranges, which share none with others
/// (`Pss` of /proc/self/smaps, or of `file`). It reads a line per mapping and kind, so it takes milliseconds.
std::int64_t readProportionalSetSizeBytes(const std::vector<MemoryRange> &leftOut,
                                          const std::string &file = "/proc/self/smaps");

} // namespace fsdpc::rt
