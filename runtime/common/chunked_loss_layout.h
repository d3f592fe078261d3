// The scratch of a loss over chunks of positions (chunked_loss.h), for its kernels and for the compiler's plan. Header
// only: the compiler links no kernel.
#pragma once

#include <cstdint>

namespace fsdpc::rt {

/// Offsets in bytes. The scratch of matmuls follows the last one.
struct ChunkedLossLayout {
  std::int64_t lse, columns, matmuls;

  static constexpr std::int64_t aligned(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }
  /// The logits of `chunk` positions come first. `columns` are sums over positions, for the derivative of a bias.
  constexpr ChunkedLossLayout(std::int64_t chunk, std::int64_t classes, std::int64_t elementBytes, bool sumsColumns)
      : lse(aligned(chunk * classes * elementBytes)), columns(lse + aligned(chunk * std::int64_t{sizeof(float)})),
        matmuls(columns + (sumsColumns ? aligned(classes * std::int64_t{sizeof(float)}) : 0)) {}
};

} // namespace fsdpc::rt
