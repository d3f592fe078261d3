// Lookups in a table whose rows are split over ranks (ir/ops/rows.cpp). Negative indices count from the end. An index
// outside the table ends the program, on every rank.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// answers [count, inner] = for each index its row, if this rank's shard [own, inner] has it, else -0. T is an unsigned
/// integer of the element's size; the elements are floats.
template <class T, class Index>
void gatherRows(const Context &c, const RowsShape &shape, const T *shard, const Index *indices, T *answers);

/// Scratch of scatterRows in bytes.
std::int64_t scatterRowsScratchBytes(const RowsShape &shape);
/// x [own, inner] = the sums of the updates [count, inner] of each row of this rank: those of one rank as in
/// scatterAdd, then over ranks as one tree in rank order (tree_sum.h). Fewer than 2^31 indices.
template <class Index>
void scatterRows(const Context &c, const RowsShape &shape, const Index *indices, const float *updates, float *x,
                 Workspace workspace);

#define FSDPC_ROWS(prefix, Index)                                                                                      \
  prefix template void gatherRows(const Context &, const RowsShape &, const std::uint16_t *, const Index *,            \
                                  std::uint16_t *);                                                                    \
  prefix template void gatherRows(const Context &, const RowsShape &, const std::uint32_t *, const Index *,            \
                                  std::uint32_t *);                                                                    \
  prefix template void scatterRows(const Context &, const RowsShape &, const Index *, const float *, float *,          \
                                   Workspace);
FSDPC_ROWS(extern, std::int64_t)
FSDPC_ROWS(extern, std::int32_t)

} // namespace fsdpc::rt
