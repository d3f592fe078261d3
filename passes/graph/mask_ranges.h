// Constants in the making of a mask: ranges along axes of the scores, and matrices that the file stores.
#pragma once

#include "passes/graph/mask_meaning.h"

namespace fsdpc {

constexpr int64_t noAxis = -1, unknownAxis = -2;
/// Larger constants are not looked at for ranges, only for bands.
constexpr int64_t maxRangeElements = int64_t(1) << 22;

/// What indexes an axis of a value: offset + step * (an axis of the scores), or the offset alone.
struct Index {
  int64_t axis = noAxis;
  int64_t offset = 0, step = 0;
};
using Indices = llvm::SmallVector<Index, 5>;

/// start + step * index, for scores of this rank.
Linear along(const Index &index, double start, double step, int64_t rank);

/// Numbers that grow by steps on each axis that indices vary on; unknown if they do not.
Meaning rangeOf(const Dense &dense, const Type &type, const Indices &indices, int64_t rank);

/// A mask that the file stores in the shape of the scores' last two axes; unknown if it is no band.
Meaning bandOf(const Dense &dense, const Type &type, const Indices &indices, int64_t rank);

} // namespace fsdpc
