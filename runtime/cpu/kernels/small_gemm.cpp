// The products in a matmul may be contracted into fused multiply-adds, because the IR names no rounding between them.
#pragma GCC optimize("fp-contract=fast")

#include "runtime/cpu/kernels/small_gemm.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::rt {

namespace {

#if defined(__AVX512F__)
constexpr int vectorFloats = 16;
constexpr int tileRows = 12; // 24 accumulators, 2 columns of B, the rest for A
#else
constexpr int vectorFloats = 8;
constexpr int tileRows = 3; // 12 accumulators of 16 registers
#endif
constexpr std::int64_t innerBlock = 512; // products summed before they are added to the result
constexpr int tileVectors = panelColumns / vectorFloats;
static_assert(panelColumns % vectorFloats == 0);

typedef float Vector __attribute__((vector_size(vectorFloats * 4), aligned(4), may_alias));
typedef float Register __attribute__((vector_size(vectorFloats * 4)));

template <int rows>
[[gnu::always_inline]] inline void multiplyTile(std::int64_t k, const float *a, std::int64_t aRowStride,
                                                std::int64_t aColumnStride, const float *panel, float *c,
                                                std::int64_t cRowStride, bool accumulate) {
  Register sum[rows][tileVectors];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < tileVectors; ++j)
      sum[i][j] = Register{};
  for (std::int64_t p = 0; p < k; ++p, a += aColumnStride, panel += panelColumns) {
    Register b[tileVectors];
#pragma GCC unroll 4
    for (int j = 0; j < tileVectors; ++j)
      b[j] = *reinterpret_cast<const Vector *>(panel + j * vectorFloats);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const float value = a[i * aRowStride];
#pragma GCC unroll 4
      for (int j = 0; j < tileVectors; ++j)
        sum[i][j] += value * b[j];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < tileVectors; ++j) {
      Vector *const to = reinterpret_cast<Vector *>(c + i * cRowStride + j * vectorFloats);
      *to = accumulate ? *to + sum[i][j] : sum[i][j];
    }
}

using Tile = void (*)(std::int64_t, const float *, std::int64_t, std::int64_t, const float *, float *, std::int64_t,
                      bool);
template <int rows>
void tile(std::int64_t k, const float *a, std::int64_t aRowStride, std::int64_t aColumnStride, const float *panel,
          float *c, std::int64_t cRowStride, bool accumulate) {
  multiplyTile<rows>(k, a, aRowStride, aColumnStride, panel, c, cRowStride, accumulate);
}
#if defined(__AVX512F__)
constexpr Tile tiles[] = {nullptr, tile<1>, tile<2>, tile<3>,  tile<4>,  tile<5>, tile<6>,
                          tile<7>, tile<8>, tile<9>, tile<10>, tile<11>, tile<12>};
#else
constexpr Tile tiles[] = {nullptr, tile<1>, tile<2>, tile<3>};
#endif

/// Computes the last panel of a C whose width is not a multiple of the panel, through a buffer of full width.
void tileWithTail(int rows, std::int64_t columns, std::int64_t k, const float *a, std::int64_t aRowStride,
                  std::int64_t aColumnStride, const float *panel, float *c, std::int64_t cRowStride, bool accumulate) {
  alignas(64) float buffer[tileRows * panelColumns];
  if (accumulate)
    for (int i = 0; i < rows; ++i) {
      std::memset(buffer + i * panelColumns, 0, sizeof(float) * panelColumns);
      std::memcpy(buffer + i * panelColumns, c + i * cRowStride, sizeof(float) * columns);
    }
  tiles[rows](k, a, aRowStride, aColumnStride, panel, buffer, panelColumns, accumulate);
  for (int i = 0; i < rows; ++i)
    std::memcpy(c + i * cRowStride, buffer + i * panelColumns, sizeof(float) * columns);
}

} // namespace

void packRows(const float *b, std::int64_t rowStride, std::int64_t k, std::int64_t n, float *packed) {
  for (std::int64_t column = 0; column < n; column += panelColumns) {
    const std::int64_t width = std::min(panelColumns, n - column);
    for (std::int64_t row = 0; row < k; ++row, packed += panelColumns) {
      const float *source = b + row * rowStride + column;
      if (width == panelColumns) {
        std::memcpy(packed, source, sizeof(float) * panelColumns);
        continue;
      }
      for (std::int64_t i = 0; i < panelColumns; ++i)
        packed[i] = i < width ? source[i] : 0;
    }
  }
}

void packColumns(const float *b, std::int64_t rowStride, std::int64_t k, std::int64_t n, float *packed) {
  constexpr std::int64_t block = 16; // both sides of a block stay in the first-level cache
  for (std::int64_t column = 0; column < n; column += panelColumns, packed += k * panelColumns) {
    const std::int64_t width = std::min(panelColumns, n - column);
    if (width < panelColumns)
      std::memset(packed, 0, sizeof(float) * k * panelColumns);
    for (std::int64_t row = 0; row < k; row += block)
      for (std::int64_t i = 0; i < width; ++i) {
        const float *source = b + (column + i) * rowStride;
        const std::int64_t end = std::min(k, row + block);
        for (std::int64_t p = row; p < end; ++p)
          packed[p * panelColumns + i] = source[p];
      }
  }
}

void smallGemm(std::int64_t m, std::int64_t n, std::int64_t k, const float *a, std::int64_t aRowStride,
               std::int64_t aColumnStride, const float *packed, float *c, std::int64_t cRowStride, bool accumulate) {
  for (std::int64_t column = 0; column < n; column += panelColumns, packed += k * panelColumns) {
    const std::int64_t width = std::min(panelColumns, n - column);
    for (std::int64_t row = 0; row < m; row += tileRows) {
      const int rows = static_cast<int>(std::min<std::int64_t>(tileRows, m - row));
      float *cTile = c + row * cRowStride + column;
      for (std::int64_t p = 0; p == 0 || p < k; p += innerBlock) {
        const std::int64_t length = std::min(innerBlock, k - p);
        const float *aTile = a + row * aRowStride + p * aColumnStride, *panel = packed + p * panelColumns;
        const bool adds = accumulate || p > 0;
        if (width == panelColumns)
          tiles[rows](length, aTile, aRowStride, aColumnStride, panel, cTile, cRowStride, adds);
        else
          tileWithTail(rows, width, length, aTile, aRowStride, aColumnStride, panel, cTile, cRowStride, adds);
      }
    }
  }
}

} // namespace fsdpc::rt
