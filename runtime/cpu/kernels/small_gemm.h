// A register-tiled matmul for blocks that fit in cache, the basis of attention.
//
//   C[m, n] (+)= A[m, k] * B[k, n]
//
// B is packed beforehand into panels of `panelColumns` columns, [panel][k][panelColumns], zero-padded. A is read
// through two strides, so a transposed A costs nothing. Compiled with contraction into fused multiply-adds, like
// library matmuls.
#pragma once

#include "runtime/cpu/kernels/scratch_sizes.h"

#include <cstdint>

namespace fsdpc::rt {

using scratch_sizes::paddedColumns;
using scratch_sizes::panelColumns;

/// Packs B[k, n], b[k * rowStride + n], into panels at `packed` (k * paddedColumns(n) floats).
void packRows(const float *b, std::int64_t rowStride, std::int64_t k, std::int64_t n, float *packed);
/// Packs the transpose: B[k, n] = b[n * rowStride + k].
void packColumns(const float *b, std::int64_t rowStride, std::int64_t k, std::int64_t n, float *packed);

/// One matmul. `accumulate` adds to C instead of overwriting it. c[m * cRowStride + n]; only n columns are written. a[m
/// * aRowStride + k * aColumnStride].
void smallGemm(std::int64_t m, std::int64_t n, std::int64_t k, const float *a, std::int64_t aRowStride,
               std::int64_t aColumnStride, const float *packed, float *c, std::int64_t cRowStride, bool accumulate);

} // namespace fsdpc::rt
