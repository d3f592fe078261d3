// The position that an index names. Negative indices count from the end.
#pragma once

#include "runtime/common/kernel_shapes.h"
#include "runtime/cuda/index_faults.h"

namespace fsdpc::rt {

/// -1 outside the axis.
__device__ inline std::int64_t positionOf(std::int64_t index, std::int64_t size) {
  const std::int64_t position = index < 0 ? index + size : index;
  return position < 0 || position >= size ? -1 : position;
}

/// `axis`: the axis of the tuple that the index is for. An index beyond 2^39 saturates.
__device__ inline void report(const IndexFaults &faults, std::int64_t index, int axis) {
  const std::int64_t most = std::int64_t{1} << (IndexFaults::indexBits - 1);
  const std::int64_t told = index < -most ? 0 : index >= most ? 2 * most - 1 : index + most;
  const unsigned long long place =
      (static_cast<unsigned long long>(faults.node) << IndexFaults::axisBits) | static_cast<unsigned>(axis);
  atomicMin(faults.word, (place << IndexFaults::indexBits) | static_cast<unsigned long long>(told));
}

/// The row of its batch that a tuple names. Returns -1, and reports to the host, if an index is outside its axis.
template <class Index>
__device__ std::int64_t rowOfTuple(const GatherNdShape &shape, const Index *tuple, const IndexFaults &faults) {
  bool outside = false;
  std::int64_t row = 0;
  // A constant bound lets the loop be unrolled; otherwise shape.dims would be copied to local memory.
  for (int d = 0; d < maxRank && d < shape.depth; ++d) {
    const std::int64_t index = tuple[d], position = positionOf(index, shape.dims[d]);
    if (position < 0)
      report(faults, index, d);
    outside |= position < 0;
    row = row * shape.dims[d] + position;
  }
  return outside ? -1 : row;
}

} // namespace fsdpc::rt
