// Positions of indices. Negative indices count from the end. All are compared with their axis once, before any thread
// starts, so the loops need no checks.
#pragma once

#include "runtime/common/index_fault.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// Throws for the first of indices[0], indices[step], ... that is not in [-size, size).
template <class Index>
void checkIndices(const Index *indices, std::int64_t count, std::int64_t step, std::int64_t size, int node) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = indices[i * step];
    if (index < -size || index >= size)
      throw indexFailure(node, index, size);
  }
}

/// The same for tuples, axis by axis.
template <class Index>
void checkTuples(const GatherNdShape &shape, const Index *indices) {
  for (int d = 0; d < shape.depth; ++d)
    checkIndices(indices + d, shape.batch * shape.count, shape.depth, shape.dims[d], shape.node);
}

/// The position of a checked index.
template <class Index>
std::int64_t position(Index index, std::int64_t size) {
  return index < 0 ? index + size : static_cast<std::int64_t>(index);
}

/// The row that a checked tuple addresses in its batch.
template <class Index>
std::int64_t rowOfTuple(const GatherNdShape &shape, const Index *tuple) {
  std::int64_t row = 0;
  for (int d = 0; d < shape.depth; ++d)
    row = row * shape.dims[d] + position(tuple[d], shape.dims[d]);
  return row;
}

} // namespace fsdpc::rt
