// The memory that ranks of several hosts exchange through. The compiler reports it, the runtime maps it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fsdpc::rt {

/// Bytes per rank for `channels` channels of collectives, mapped only if the ranks live on several hosts. A transfer
/// takes as many rounds as do not fit. With that much per rank of the world, a message has at least 64 KiB, which is
/// enough for the rate of a network, up to 256 hosts; then they become shorter.
constexpr std::int64_t linkBytesFor(std::int64_t worldSize, int channels) {
  constexpr std::int64_t perRankBytes = 128 << 10, maxBytes = 32 << 20;
  return channels * std::min(worldSize * perRankBytes, maxBytes);
}

} // namespace fsdpc::rt
