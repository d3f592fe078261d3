// Memory of this process, as reported by the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc::rt {

/// A mapped memory range of this process.
struct MemoryRange {
  const void *begin = nullptr;
  std::int64_t bytes = 0;
};

/// The share of physical memory of this process: private pages count fully, and a page mapped by k processes counts 1/k
/// (`Pss` of /proc/self/smaps_rollup). Summed over the ranks of a host, shared windows count once. Without pages of
/// files (`Pss_File`): the share of a library's code changes when an unrelated process loads or unloads it. -1 if
/// unknown.
std::int64_t readProportionalSetSizeBytes();

/// Same, but with pages of files and without mappings that begin inside a range of `leftOut` (`Pss` of
/// /proc/self/smaps, or of `file`). A range in `leftOut` shares no mapping with memory outside. Reads one line per
/// mapping and kind, so it takes milliseconds.
std::int64_t readProportionalSetSizeBytes(const std::vector<MemoryRange> &leftOut,
                                          const std::string &file = "/proc/self/smaps");

} // namespace fsdpc::rt
