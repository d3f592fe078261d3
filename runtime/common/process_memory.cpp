#include "runtime/common/process_memory.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace fsdpc::rt {

static bool contains(const std::vector<MemoryRange> &ranges, std::uintptr_t address) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const MemoryRange &range) {
    const auto begin = reinterpret_cast<std::uintptr_t>(range.begin);
    return address >= begin && address - begin < static_cast<std::uintptr_t>(range.bytes);
  });
}

std::int64_t readProportionalSetSizeBytes(const std::vector<MemoryRange> &leftOut, const std::string &file) {
  std::ifstream mappings(file);
  std::int64_t kibibytes = -1;
  bool counts = true;
  for (std::string line; std::getline(mappings, line);) {
    unsigned long begin = 0, end = 0;
    long long value = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      counts = !contains(leftOut, begin);
    else if (std::sscanf(line.c_str(), "Pss: %lld kB", &value) == 1)
      kibibytes = std::max<std::int64_t>(kibibytes, 0) + (counts ? value : 0);
    else if (std::sscanf(line.c_str(), "Pss_File: %lld kB", &value) == 1)
      kibibytes -= value;
  }
  return kibibytes < 0 ? -1 : kibibytes * 1024;
}

// The kernel's own sum rounds only once and is much faster to read. Only this file has Pss_File.
std::int64_t readProportionalSetSizeBytes() { return readProportionalSetSizeBytes({}, "/proc/self/smaps_rollup"); }

} // namespace fsdpc::rt
