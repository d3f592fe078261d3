// Which part of a tensor each of the ranks that hold the same elements writes. Defined once for programs and for the
// compiler, which plans the memory of the copy.
#pragma once

#include <cstdint>

namespace fsdpc {

/// Elements [begin, end) of those held; begin == end: none.
struct WrittenPart {
  std::int64_t begin = 0, end = 0;
};

/// A part below this size is not divided.
inline constexpr std::int64_t smallestPartBytes = 1 << 16;

/// `holder` of `holders` ranks, counted from 0. `offsetElements`: where the tensor starts in its segment; it spreads
/// small tensors over the ranks.
constexpr WrittenPart writtenPart(std::int64_t heldElements, std::int64_t elementBytes, std::int64_t holders,
                                  std::int64_t holder, std::int64_t offsetElements) {
  const std::int64_t wanted = heldElements * elementBytes / smallestPartBytes;
  const std::int64_t parts = wanted < 1 ? 1 : wanted > holders ? holders : wanted;
  const std::int64_t part = (holder + offsetElements / 128) % holders;
  if (part >= parts)
    return {};
  return {heldElements * part / parts, heldElements * (part + 1) / parts};
}

/// The index of a rank among those that hold the same shard of a mesh axis: ranks are (outer, member, inner), members
/// `stride` apart.
constexpr std::int64_t holderIndex(std::int64_t rank, std::int64_t axisSize, std::int64_t axisStride) {
  return rank / (axisStride * axisSize) * axisStride + rank % axisStride;
}

} // namespace fsdpc
