// A matmul of bf16 operands on AMX tiles for blocks that fit in cache, the basis of attention in bf16.
//
//   C[m, n] (+)= A[m, k] * B[k, n], sums in f32
//
// All sizes are whole tiles: m and k multiples of 32, n of panelColumns. A's rows are aRowStride elements apart. B is
// packed beforehand into panels of panelColumns columns, [panel][k / 2][panelColumns][2]: the instruction multiplies
// pairs. Only for processors with AMX (CpuLevel::amxBf16), between a TileSession's begin and end on this thread.
#pragma once

#include "runtime/common/bfloat16.h"
#include "runtime/cpu/kernels/scratch_sizes.h"

namespace fsdpc::rt {

inline constexpr std::int64_t tileStep = 32; ///< elements of a row of a tile: the step of a sum

/// The shapes of this thread's tiles. Others use the tiles too, so each kernel sets them.
class TileSession {
public:
  TileSession();
  ~TileSession();
};

void tileGemm(std::int64_t m, std::int64_t n, std::int64_t k, const Bfloat16 *a, std::int64_t aRowStride,
              const Bfloat16 *packed, float *c, std::int64_t cRowStride, bool accumulate);

/// Packs B[k, n], b[k * rowStride + n], for n a multiple of panelColumns. Rows from k to `paddedRows` are zeros.
void packPairsOfRows(const Bfloat16 *b, std::int64_t rowStride, std::int64_t k, std::int64_t paddedRows, std::int64_t n,
                     Bfloat16 *packed);
/// Packs the transpose: B[k, n] = b[n * rowStride + k], for even k and rowStride. Columns from n on are zeros.
void packPairsOfColumns(const Bfloat16 *b, std::int64_t rowStride, std::int64_t k, std::int64_t n, Bfloat16 *packed);

/// turned[d, i] = block[i, d] for a block of `rows` x `width` whose rows have no gaps; both multiples of 32.
void turn(const Bfloat16 *block, std::int64_t rows, std::int64_t width, Bfloat16 *turned);
/// out[i * outStride + d] = in[d * inStride + i], rounded, for `rows` x `width` of out.
void turnRounded(const float *in, std::int64_t inStride, std::int64_t rows, std::int64_t width, Bfloat16 *out,
                 std::int64_t outStride);
/// Rounds `count` floats, and adds zeros up to `padded`.
void roundRow(const float *row, std::int64_t count, std::int64_t padded, Bfloat16 *rounded);

} // namespace fsdpc::rt
