// Scratch sizes of the cuda target's own kernels, defined once for the kernels and for the compiler's plan
// (codegen/cuda/scratch.cpp). Header only, arithmetic only: the compiler links no kernel.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fsdpc::rt::scratch_sizes {

constexpr std::int64_t quotientUp(std::int64_t value, std::int64_t divisor) { return (value + divisor - 1) / divisor; }

/// Columns of a block that sums rows of a norm.
inline constexpr std::int64_t normColumnWidth = 4, normBlockColumns = 32 * normColumnWidth;

/// For the derivative of a norm: enough chunks of rows to keep a large device busy, but none with few rows only.
constexpr std::int64_t normGradChunks(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t blocks = 512, maxChunks = 128, fewRows = 32;
  const std::int64_t columnBlocks = std::max<std::int64_t>(1, quotientUp(columns, normBlockColumns));
  return std::max<std::int64_t>(1, std::min({blocks / columnBlocks, maxChunks, quotientUp(rows, fewRows)}));
}

/// One sum per chunk for each of `sums` vectors [columns].
constexpr std::int64_t normGradBytes(std::int64_t rows, std::int64_t columns, std::int64_t sums) {
  return normGradChunks(rows, columns) * columns * sums * std::int64_t{sizeof(float)};
}

/// For x [outer, channels, inner]: at `shortRun` or more elements of `inner`, a contiguous range fills a warp. Blocks
/// for shorter ranges take `shortRunColumns` channels.
inline constexpr std::int64_t shortRun = 32, shortRunColumns = 32;

/// The number of chunks per channel.
constexpr std::int64_t channelChunks(std::int64_t outer, std::int64_t channels, std::int64_t inner) {
  constexpr std::int64_t enoughBlocks = 1024, minElements = 4096;
  const std::int64_t blocks = inner < shortRun ? quotientUp(channels, shortRunColumns) : channels;
  const std::int64_t most = quotientUp(outer * inner, minElements);
  return std::max<std::int64_t>(1, std::min({most, enoughBlocks / std::max<std::int64_t>(1, blocks), outer}));
}

/// Two sums in f64 per chunk of each channel.
constexpr std::int64_t channelSumsBytes(std::int64_t outer, std::int64_t channels, std::int64_t inner) {
  return channelChunks(outer, channels, inner) * channels * std::int64_t{2 * sizeof(double)};
}

/// For the derivative of attention: a delta for each query of each head; with a mask also a shift and a factor.
constexpr std::int64_t attentionGradBytes(std::int64_t queries, bool hasMask) {
  return (hasMask ? 3 : 1) * queries * std::int64_t{sizeof(float)};
}

} // namespace fsdpc::rt::scratch_sizes
