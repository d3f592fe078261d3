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

/// Sizes of attention over 16-bit operands.
struct AttentionSizes {
  std::int64_t queries, keys, queryWidth, valueWidth;
};

/// The f32 copies of one head of 16-bit operands and results, after the layouts above: offsets in floats. A derivative
/// has a copy of k, v and their gradients for all heads of q that read them.
struct AttentionCopies {
  std::int64_t q, k, v, o, dO, dq, dk, dv, size;
  constexpr AttentionCopies(const AttentionSizes &s, bool isGrad)
      : q(isGrad ? AttentionGradLayout(s.keys, s.queryWidth, s.valueWidth).size
                 : AttentionLayout(s.keys, s.queryWidth, s.valueWidth).size),
        k(q + roundUp(s.queries * s.queryWidth, lineFloats)), v(k + roundUp(s.keys * s.queryWidth, lineFloats)),
        o(v + roundUp(s.keys * s.valueWidth, lineFloats)), dO(o + roundUp(s.queries * s.valueWidth, lineFloats)),
        dq(dO + (isGrad ? roundUp(s.queries * s.valueWidth, lineFloats) : 0)),
        dk(dq + (isGrad ? roundUp(s.queries * s.queryWidth, lineFloats) : 0)),
        dv(dk + (isGrad ? roundUp(s.keys * s.queryWidth, lineFloats) : 0)),
        size(dv + (isGrad ? roundUp(s.keys * s.valueWidth, lineFloats) : 0)) {}
};

/// Attention over bf16 operands on AMX tiles: offsets in bytes. Operands of tiles are complete blocks of queries and
/// panels of keys, with zeros beyond the last one.
inline constexpr std::int64_t tileQueryBlock = 64; ///< whole pairs of tiles, and of steps of a sum
struct AttentionTileLayout {
  std::int64_t keys, values, queries, scores, probabilities, outputs, size;
  constexpr explicit AttentionTileLayout(const AttentionSizes &s)
      : keys(0), values(keys + 2 * s.queryWidth * paddedColumns(s.keys)),
        queries(values + 2 * s.valueWidth * paddedColumns(s.keys)), scores(queries + 2 * tileQueryBlock * s.queryWidth),
        probabilities(scores + 4 * tileQueryBlock * paddedColumns(s.keys)),
        outputs(probabilities + 2 * tileQueryBlock * paddedColumns(s.keys)),
        size(outputs + 4 * tileQueryBlock * s.valueWidth) {}
};
struct AttentionGradTileLayout {
  std::int64_t keys, keyRows, values, queries, turnedQueries, outputs, turnedOutputs, scores, slopes, probabilities,
      differences, pairs, dq, dk, dv, size;
  constexpr explicit AttentionGradTileLayout(const AttentionSizes &s)
      : keys(0), keyRows(keys + 2 * s.queryWidth * paddedColumns(s.keys)),
        values(keyRows + 2 * s.queryWidth * paddedColumns(s.keys)),
        queries(values + 2 * s.valueWidth * paddedColumns(s.keys)),
        turnedQueries(queries + 2 * tileQueryBlock * s.queryWidth),
        outputs(turnedQueries + 2 * tileQueryBlock * s.queryWidth),
        turnedOutputs(outputs + 2 * tileQueryBlock * s.valueWidth),
        scores(turnedOutputs + 2 * tileQueryBlock * s.valueWidth),
        slopes(scores + 4 * tileQueryBlock * paddedColumns(s.keys)),
        probabilities(slopes + 4 * tileQueryBlock * paddedColumns(s.keys)),
        differences(probabilities + 2 * tileQueryBlock * paddedColumns(s.keys)),
        pairs(differences + 2 * tileQueryBlock * paddedColumns(s.keys)),
        dq(pairs + 2 * tileQueryBlock * paddedColumns(s.keys)), dk(dq + 4 * tileQueryBlock * s.queryWidth),
        dv(dk + 4 * s.queryWidth * paddedColumns(s.keys)), size(dv + 4 * s.valueWidth * paddedColumns(s.keys)) {}
};
/// Whether rows of the operands are whole steps of a sum on tiles.
constexpr bool fitsTiles(const AttentionSizes &s) { return s.queryWidth % 32 == 0 && s.valueWidth % 32 == 0; }

/// Scratch in bytes of one thread, for operands of 16 bits on any processor.
constexpr std::int64_t attentionHalvesBytes(const AttentionSizes &s, bool isGrad) {
  const std::int64_t copies = AttentionCopies(s, isGrad).size * std::int64_t{sizeof(float)};
  if (!fitsTiles(s))
    return copies;
  const std::int64_t tiles = isGrad ? AttentionGradTileLayout(s).size : AttentionTileLayout(s).size;
  return tiles > copies ? tiles : copies;
}

/// The number of columns of b that a matmul in f32 copies at a time, so that their rows are close to each other; 0: it
/// reads b where it is.
///
/// oneDNN reads an untransposed b in place, except where its rows are a power of two of bytes apart. Lines of many rows
/// then compete for the same places in the caches, most of all if rows are a multiple of 2 KiB apart: a third of the
/// speed at n = 3072. Other wide operands gain where many rows share the copy (measured: tests/bench/RESULTS.md).
constexpr std::int64_t panelOfMatmul(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
                                     bool transposeB) {
  constexpr std::int64_t fewest = 256, most = 768, step = 16, fewestRows = 16, manyRows = 1024;
  if (batch != 1 || transposeB || n < 2 * most || m < fewestRows)
    return 0;
  const bool isPowerOfTwo = (n & (n - 1)) == 0;
  const bool collides = n % 512 == 0 && !isPowerOfTwo && (n > 2048 || k > 2048);
  if (!collides && m < manyRows)
    return 0;
  for (std::int64_t columns = most; columns >= fewest; columns -= step)
    if (n % columns == 0)
      return columns;
  return 0;
}
/// The distance of a copied panel's rows, in elements.
constexpr std::int64_t panelStride(std::int64_t columns) { return columns + lineFloats; }
/// The copy of a panel comes first in the scratch of the matmul.
constexpr std::int64_t panelBytes(std::int64_t columns, std::int64_t k) {
  return columns == 0 ? 0 : roundUp(k * panelStride(columns) * std::int64_t{sizeof(float)}, 64);
}

/// The f32 copies of 16-bit operands and results of a matmul or convolution, where the processor has no products of
/// that type: offsets in bytes. The scratch for the copies' own product follows. Without such operands it is empty.
struct ProductCopies {
  std::int64_t a = 0, b = 0, bias = 0, out = 0, end = 0;

  constexpr ProductCopies() = default;
  constexpr ProductCopies(std::int64_t aElements, std::int64_t bElements, std::int64_t biasElements,
                          std::int64_t outElements, bool isResultHalf)
      : b(bytes(aElements)), bias(b + bytes(bElements)), out(bias + (isResultHalf ? bytes(biasElements) : 0)),
        end(out + (isResultHalf ? bytes(outElements) : 0)) {}

private:
  static constexpr std::int64_t bytes(std::int64_t elements) {
    return roundUp(elements * std::int64_t{sizeof(float)}, 64);
  }
};

/// The f32 copies of the operands of a linear loss in bf16 and of its dhidden, where the processor has no products of
/// that type: offsets in bytes. The scratch of the copies' loss follows (ChunkedLossLayout, f32); without copies that
/// of the operands' own is smaller.
struct LinearLossCopies {
  struct Sizes {
    std::int64_t rows, width, classes;
    bool hasBias, isGrad;
  };
  std::int64_t hidden = 0, weight, bias, dhidden, end;

  constexpr explicit LinearLossCopies(const Sizes &s)
      : weight(bytes(s.rows * s.width)), bias(weight + bytes(s.width * s.classes)),
        dhidden(bias + (s.hasBias ? bytes(s.classes) : 0)), end(dhidden + (s.isGrad ? bytes(s.rows * s.width) : 0)) {}

private:
  static constexpr std::int64_t bytes(std::int64_t elements) {
    return roundUp(elements * std::int64_t{sizeof(float)}, 64);
  }
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
