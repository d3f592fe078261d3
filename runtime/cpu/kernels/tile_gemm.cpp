#include "runtime/cpu/kernels/tile_gemm.h"

#include "runtime/common/float16.h"

#include <algorithm>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fsdpc::rt {

using scratch_sizes::panelColumns;

namespace {

/// Two bf16 elements, moved together.
typedef std::uint32_t Pair __attribute__((may_alias));

constexpr std::int64_t side = 16; ///< rows of a tile, and its columns of 4 bytes
constexpr std::int64_t rowBytes = 64;

/// out[j * outStride + i] = in[i * inStride + j] for i < rows, j < columns.
void turnPairs(const Pair *in, std::int64_t inStride, std::int64_t rows, std::int64_t columns, Pair *out,
               std::int64_t outStride) {
  for (std::int64_t column = 0; column < columns; column += side)
    for (std::int64_t row = 0; row < rows; row += side) {
      const std::int64_t height = std::min(side, rows - row), width = std::min(side, columns - column);
      for (std::int64_t j = 0; j < width; ++j) {
        const Pair *const from = in + row * inStride + column + j;
        Pair *const to = out + (column + j) * outStride + row;
        for (std::int64_t i = 0; i < height; ++i)
          to[i] = from[i * inStride];
      }
    }
}

} // namespace

#if defined(__x86_64__)

namespace {

#define FSDPC_TILES __attribute__((target("amx-tile,amx-bf16")))

/// Sums of 2 x 2 tiles in 0 to 3; 4 and 5 are of a, 6 and 7 of b.
FSDPC_TILES void multiplyTiles(std::int64_t k, const Bfloat16 *a, std::int64_t aRowStride, const Bfloat16 *panel,
                               float *c, std::int64_t cRowStride, bool accumulate) {
  const std::int64_t aBytes = aRowStride * 2, cBytes = cRowStride * 4, bBytes = panelColumns * 4;
  float *const below = c + side * cRowStride;
  if (accumulate) {
    _tile_loadd(0, c, cBytes);
    _tile_loadd(1, c + side, cBytes);
    _tile_loadd(2, below, cBytes);
    _tile_loadd(3, below + side, cBytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t step = 0; step < k; step += tileStep) {
    const Bfloat16 *const b = panel + step * panelColumns;
    _tile_loadd(4, a + step, aBytes);
    _tile_loadd(6, b, bBytes);
    _tile_loadd(7, b + side * 2, bBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + side * aRowStride + step, aBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, cBytes);
  _tile_stored(1, c + side, cBytes);
  _tile_stored(2, below, cBytes);
  _tile_stored(3, below + side, cBytes);
}

FSDPC_TILES void configureTiles() {
  struct alignas(64) Configuration {
    std::uint8_t palette = 1, startRow = 0, reserved[14] = {};
    std::uint16_t columnBytes[16] = {};
    std::uint8_t rows[16] = {};
  } configuration;
  for (int tile = 0; tile < 8; ++tile) {
    configuration.columnBytes[tile] = rowBytes;
    configuration.rows[tile] = side;
  }
  asm volatile("ldtilecfg %0" : : "m"(configuration)); // the compiler's own form reads 8 bytes for all it knows
}

FSDPC_TILES void releaseTiles() { _tile_release(); }

} // namespace

TileSession::TileSession() { configureTiles(); }
TileSession::~TileSession() { releaseTiles(); }

void tileGemm(std::int64_t m, std::int64_t n, std::int64_t k, const Bfloat16 *a, std::int64_t aRowStride,
              const Bfloat16 *packed, float *c, std::int64_t cRowStride, bool accumulate) {
  asm volatile("" : : : "memory"); // loads of tiles do not tell the compiler that they read memory
  for (std::int64_t column = 0; column < n; column += panelColumns, packed += k * panelColumns)
    for (std::int64_t row = 0; row < m; row += 2 * side)
      multiplyTiles(k, a + row * aRowStride, aRowStride, packed, c + row * cRowStride + column, cRowStride, accumulate);
}

#else

// No other processor has the level that calls these.
TileSession::TileSession() {}
TileSession::~TileSession() {}
void tileGemm(std::int64_t, std::int64_t, std::int64_t, const Bfloat16 *, std::int64_t, const Bfloat16 *, float *,
              std::int64_t, bool) {}

#endif

void packPairsOfRows(const Bfloat16 *b, std::int64_t rowStride, std::int64_t k, std::int64_t paddedRows, std::int64_t n,
                     Bfloat16 *packed) {
  alignas(64) static constexpr std::uint16_t zeros[panelColumns] = {};
  for (std::int64_t column = 0; column < n; column += panelColumns)
    for (std::int64_t row = 0; row < paddedRows; row += 2, packed += 2 * panelColumns) {
      const auto bitsOf = [&](std::int64_t i) { return i < k ? &b[i * rowStride + column].bits : zeros; };
      const std::uint16_t *const first = bitsOf(row), *const second = bitsOf(row + 1);
      Pair *const pairs = reinterpret_cast<Pair *>(packed);
#pragma omp simd
      for (std::int64_t j = 0; j < panelColumns; ++j)
        pairs[j] = first[j] | static_cast<std::uint32_t>(second[j]) << 16;
    }
}

void packPairsOfColumns(const Bfloat16 *b, std::int64_t rowStride, std::int64_t k, std::int64_t n, Bfloat16 *packed) {
  for (std::int64_t column = 0; column < n; column += panelColumns, packed += k * panelColumns) {
    const std::int64_t width = std::min(panelColumns, n - column);
    if (width < panelColumns)
      std::memset(packed, 0, 2 * k * panelColumns);
    turnPairs(reinterpret_cast<const Pair *>(b + column * rowStride), rowStride / 2, width, k / 2,
              reinterpret_cast<Pair *>(packed), panelColumns);
  }
}

void turn(const Bfloat16 *block, std::int64_t rows, std::int64_t width, Bfloat16 *turned) {
  Pair pairs[panelColumns / 2 * panelColumns]; // [pair of rows][column] of 32 rows and columns
  for (std::int64_t row = 0; row < rows; row += panelColumns)
    for (std::int64_t column = 0; column < width; column += panelColumns) {
      packPairsOfRows(block + row * width + column, width, panelColumns, panelColumns, panelColumns,
                      reinterpret_cast<Bfloat16 *>(pairs));
      turnPairs(pairs, panelColumns, panelColumns / 2, panelColumns,
                reinterpret_cast<Pair *>(turned + column * rows + row), rows / 2);
    }
}

void turnRounded(const float *in, std::int64_t inStride, std::int64_t rows, std::int64_t width, Bfloat16 *out,
                 std::int64_t outStride) {
  for (std::int64_t row = 0; row < rows; row += side)
    for (std::int64_t column = 0; column < width; column += side) {
      const std::int64_t height = std::min(side, rows - row), length = std::min(side, width - column);
      float block[side][side];
      for (std::int64_t d = 0; d < length; ++d)
        for (std::int64_t i = 0; i < height; ++i)
          block[i][d] = in[(column + d) * inStride + row + i];
      for (std::int64_t i = 0; i < height; ++i)
        roundRow(block[i], length, length, out + (row + i) * outStride + column);
    }
}

void roundRow(const float *row, std::int64_t count, std::int64_t padded, Bfloat16 *rounded) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    storeRounded(rounded[i], row[i]);
  if (padded > count)
    std::memset(static_cast<void *>(rounded + count), 0, sizeof(Bfloat16) * (padded - count));
}

} // namespace fsdpc::rt
