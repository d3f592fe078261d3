// The memory that the host has left.
#pragma once

#include <cstdint>
#include <string>

namespace fsdpc::rt {

/// The memory available for new pages without reclaiming memory in use: MemAvailable + SwapFree, but no more than any
/// memory control group above this process leaves (version 1 or 2, its reclaimable page cache counted as free). -1 if
/// unknown. `root` is put before /proc and /sys in tests.
std::int64_t readAvailableMemoryBytes(const std::string &root = "");

/// "123456 bytes (120.6 KiB)"
std::string describeBytes(std::int64_t bytes);

} // namespace fsdpc::rt
