// Lookups in a table whose rows are split over ranks (ir/ops/rows.cpp). Negative indices count from the end. An index
// outside the table is reported as in kernels/index.h; gatherRows then yields elements with all bits set on every rank,
// and scatterRows skips the update.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// answers [count, inner] = for each index its row, if this rank's shard [own, inner] has it, else -0. T is an unsigned
/// integer of the element's size; the elements are floats.
template <class T, class Index>
void gatherRows(const Context &c, const RowsShape &shape, const T *shard, const Index *indices, T *answers);

/// None; the cpu target needs some.
inline std::int64_t scatterRowsScratchBytes(const RowsShape &) { return 0; }
/// x [own, inner] = the sums of the updates [count, inner] of each row of this rank: those of one rank as in
/// scatterAdd, then over ranks as one tree in rank order (tree_sum.h). Update is float, Bfloat16 or Float16. The work
/// grows with the square of `count`.
template <class Update, class Index>
void scatterRows(const Context &c, const RowsShape &shape, const Index *indices, const Update *updates, float *x,
                 Workspace = {});

} // namespace fsdpc::rt
