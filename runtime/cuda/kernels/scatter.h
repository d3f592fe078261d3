// Rows of a tensor replaced by, or combined with, rows of updates. Indices as in index.h. An update with an index
// outside is skipped and reported to the host.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// y = x, then every update changes the row that its tuple names, in the order of the tuples. Without a reduction,
/// elements may be any unsigned integers of their size. NaN wins over other floats. x and y do not overlap. T is float,
/// double, int64, int32, or an unsigned integer of 8 to 64 bits; Index is int64 or int32.
template <class T, class Index>
void scatterNd(const Context &c, const GatherNdShape &shape, Reduction reduction, const T *x, const Index *indices,
               const T *updates, T *y);

} // namespace fsdpc::rt
