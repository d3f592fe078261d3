// How much scratch the cpu target's own kernels want: said once, for the kernels and for the compiler's plan
// (codegen/cpu/scratch.cpp). Header only, numbers only: the compiler links no kernel.
#pragma once

#include <cstdint>

namespace fsdpc::rt::scratch_sizes {

inline constexpr std::int64_t lineFloats = 16;    ///< of 64 bytes
inline constexpr std::int64_t panelColumns = 32;  ///< of a packed operand (small_gemm.h)
inline constexpr std::int64_t queryBlock = 48;    ///< queries whose scores a thread has at once
inline constexpr std::int64_t gradientParts = 16; ///< of the rows of a norm: dgamma and dbeta are summed in so many
inline constexpr std::int64_t narrowRow = 8;      ///< elements; up to here all rows of a scatter_add are summed in f64

constexpr std::int64_t roundUp(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr std::int64_t paddedColumns(std::int64_t columns) { return roundUp(columns, panelColumns); }

/// Of attention, for one thread: offsets in floats, each a multiple of 64 bytes; the last one is the size.
struct AttentionLayout {
  std::int64_t values, scores, size;
  constexpr AttentionLayout(std::int64_t keys, std::int64_t queryWidth, std::int64_t valueWidth)
      : values(roundUp(queryWidth * paddedColumns(keys), lineFloats)),
        scores(values + roundUp(keys * paddedColumns(valueWidth), lineFloats)),
        size(scores + queryBlock * paddedColumns(keys)) {}
};

/// The same of its derivative.
struct AttentionGradLayout {
  std::int64_t keyRows, values, queries, outputs, scores, slopes, size;
  constexpr AttentionGradLayout(std::int64_t keys, std::int64_t queryWidth, std::int64_t valueWidth)
      : keyRows(roundUp(queryWidth * paddedColumns(keys), lineFloats)),
        values(keyRows + roundUp(keys * paddedColumns(queryWidth), lineFloats)),
        queries(values + roundUp(valueWidth * paddedColumns(keys), lineFloats)),
        outputs(queries + queryBlock * paddedColumns(queryWidth)),
        scores(outputs + queryBlock * paddedColumns(valueWidth)), slopes(scores + queryBlock * paddedColumns(keys)),
        size(slopes + queryBlock * paddedColumns(keys)) {}
};

/// Of the derivative of a norm: sums of `sums` vectors [columns], of all parts, each in f64, and as many in f32 for the
/// rows that are under way.
constexpr std::int64_t normGradBytes(std::int64_t columns, std::int64_t sums) {
  return gradientParts * columns * sums * std::int64_t{sizeof(double) + sizeof(float)};
}

/// Of a scatter_add of f32 of `count` rows of `inner` elements into a table of `size` rows; other types need none.
constexpr std::int64_t scatterAddBytes(std::int64_t size, std::int64_t count, std::int64_t inner) {
  return inner <= narrowRow ? size * inner * std::int64_t{sizeof(double)}
                            : (size + count) * std::int64_t{sizeof(std::int32_t)};
}

} // namespace fsdpc::rt::scratch_sizes
