// What the host says about memory: how much is left, and how much this process has.
#pragma once

#include <cstdint>
#include <string>

namespace fsdpc::rt {

/// The share of physical memory that is this process's: private pages whole, a page mapped by k processes 1/k
/// (`Pss` of /proc/self/smaps_rollup). Summed over the ranks of a host, shared windows count once. -1 if the kernel
/// does not tell.
std::int64_t readProportionalSetSizeBytes();

/// What new pages can still be had without taking them from anybody: MemAvailable + SwapFree, but no more than any
/// memory control group above this process leaves (version 1 or 2, its reclaimable page cache counted as free). -1 if
/// the kernel does not tell. `root` is put before /proc and /sys in tests.
std::int64_t readAvailableMemoryBytes(const std::string &root = "");

/// "123456 bytes (120.6 KiB)"
std::string describeBytes(std::int64_t bytes);

} // namespace fsdpc::rt
