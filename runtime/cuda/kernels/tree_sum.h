// Sums over ranks in a fixed order, for --deterministic: the balanced binary tree of runtime/cpu/tree_sum.h.
#pragma once

#include "runtime/cuda/device.h"

namespace fsdpc::rt {

/// destination[i] = sum of sources[k * elements + i] over k < count, on `stream`. Floats, i64 and i32; any other type
/// is a Failure{internal}. 16-bit elements are added in float, and the total is rounded once.
void treeSum(const Context &c, cudaStream_t stream, const void *sources, int count, void *destination,
             std::int64_t elements, DType dtype);

} // namespace fsdpc::rt
