// Sums over ranks in one order, for --deterministic: the balanced binary tree of runtime/cpu/tree_sum.h.
#pragma once

#include "runtime/cuda/device.h"

namespace fsdpc::rt {

/// destination[i] = sum of sources[k * elements + i] over k < count, on `stream`. f64, f32, i64 and i32; any other type
/// is a Failure{internal}.
void treeSum(const Context &c, cudaStream_t stream, const void *sources, int count, void *destination,
             std::int64_t elements, DType dtype);

} // namespace fsdpc::rt
