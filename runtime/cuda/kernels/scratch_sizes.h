// How much scratch the cuda target's own kernels want: said once, for the kernels and for the compiler's plan
// (codegen/cuda/scratch.cpp). Header only, numbers only: the compiler links no kernel.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fsdpc::rt::scratch_sizes {

constexpr std::int64_t quotientUp(std::int64_t value, std::int64_t divisor) { return (value + divisor - 1) / divisor; }

/// Columns of a block that sums rows of a norm.
inline constexpr std::int64_t normColumnWidth = 4, normBlockColumns = 32 * normColumnWidth;

/// Of the derivative of a norm: as many chunks of rows as keep a large device busy, but none of few rows only.
constexpr std::int64_t normGradChunks(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t blocks = 512, mostChunks = 128, fewRows = 32;
  const std::int64_t columnBlocks = std::max<std::int64_t>(1, quotientUp(columns, normBlockColumns));
  return std::max<std::int64_t>(1, std::min({blocks / columnBlocks, mostChunks, quotientUp(rows, fewRows)}));
}

/// A sum of each chunk for each of `sums` vectors [columns].
constexpr std::int64_t normGradBytes(std::int64_t rows, std::int64_t columns, std::int64_t sums) {
  return normGradChunks(rows, columns) * columns * sums * std::int64_t{sizeof(float)};
}

/// Of x [outer, channels, inner]: from `shortRun` elements of `inner` on a run is wide enough for a warp; blocks for
/// shorter runs take `shortRunColumns` channels.
inline constexpr std::int64_t shortRun = 32, shortRunColumns = 32;

/// Into how many chunks a channel is cut.
constexpr std::int64_t channelChunks(std::int64_t outer, std::int64_t channels, std::int64_t inner) {
  constexpr std::int64_t enoughBlocks = 1024, leastElements = 4096;
  const std::int64_t blocks = inner < shortRun ? quotientUp(channels, shortRunColumns) : channels;
  const std::int64_t most = quotientUp(outer * inner, leastElements);
  return std::max<std::int64_t>(1, std::min({most, enoughBlocks / std::max<std::int64_t>(1, blocks), outer}));
}

/// Two sums in f64 of each chunk of each channel.
constexpr std::int64_t channelSumsBytes(std::int64_t outer, std::int64_t channels, std::int64_t inner) {
  return channelChunks(outer, channels, inner) * channels * std::int64_t{2 * sizeof(double)};
}

/// Of the derivative of attention: a delta for each query of each head; with a mask a shift and a factor too.
constexpr std::int64_t attentionGradBytes(std::int64_t queries, bool hasMask) {
  return (hasMask ? 3 : 1) * queries * std::int64_t{sizeof(float)};
}

} // namespace fsdpc::rt::scratch_sizes
