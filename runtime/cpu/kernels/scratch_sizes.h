// The scratch sizes of the cpu target's own kernels, defined once for the kernels and for the compiler's plan
// (codegen/cpu/scratch.cpp). Header-only constants: the compiler links no kernel.
#pragma once

#include <cstdint>

namespace fsdpc::rt::scratch_sizes {

inline constexpr std::int64_t lineFloats = 16;    ///< floats in 64 bytes
inline constexpr std::int64_t panelColumns = 32;  ///< columns per panel of a packed operand (small_gemm.h)
inline constexpr std::int64_t queryBlock = 48;    ///< queries whose scores a thread computes together
inline constexpr std::int64_t gradientParts = 16; ///< parts of the rows of a norm for the sums dgamma and dbeta
inline constexpr std::int64_t narrowRow = 8;      ///< up to this row size scatter_add sums all rows in f64

constexpr std::int64_t roundUp(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr std::int64_t paddedColumns(std::int64_t columns) { return roundUp(columns, panelColumns); }

/// Scratch of attention for one thread: offsets in floats, each a multiple of 64 bytes. The last one is the size.
struct AttentionLayout {
  std::int64_t values, scores, size;
  constexpr AttentionLayout(std::int64_t keys, std::int64_t queryWidth, std::int64_t valueWidth)
      : values(roundUp(queryWidth * paddedColumns(keys), lineFloats)),
        scores(values + roundUp(keys * paddedColumns(valueWidth), lineFloats)),
        size(scores + queryBlock * paddedColumns(keys)) {}
};

/// The same for its derivative.
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

/// Scratch of the derivative of a norm: `sums` vectors [columns] per part in f64, and as many in f32 for the current
/// rows.
constexpr std::int64_t normGradBytes(std::int64_t columns, std::int64_t sums) {
  return gradientParts * columns * sums * std::int64_t{sizeof(double) + sizeof(float)};
}

/// Scratch of an f32 scatter_add of `count` rows of `inner` elements into a table of `size` rows. Other types need
/// none.
constexpr std::int64_t scatterAddBytes(std::int64_t size, std::int64_t count, std::int64_t inner) {
  return inner <= narrowRow ? size * inner * std::int64_t{sizeof(double)}
                            : (size + count) * std::int64_t{sizeof(std::int32_t)};
}

/// Scratch of a scatter_rows of `count` rows into a rank's share of `own` rows.
constexpr std::int64_t scatterRowsBytes(std::int64_t own, std::int64_t count) {
  return (own + count) * std::int64_t{sizeof(std::int32_t)};
}

} // namespace fsdpc::rt::scratch_sizes
