// How gather_nd and scatter_nd address rows of a tensor by tuples of indices.
#pragma once

#include "ir/op.h"

namespace fsdpc {

/// The position in [0, size) that an index in [-size, size) names; -1 for one outside.
int64_t normalisedIndex(double index, int64_t size);

/// x [batch dims..., indexed dims..., inner dims...] and indices [batch dims..., tuple dims..., depth], whose last axis
/// holds an index for each indexed dim.
struct IndexTuples {
  int64_t batch, depth;
  int64_t batches;              ///< product of the batch dims
  int64_t tuples;               ///< index tuples per batch
  int64_t rows;                 ///< product of the indexed dims
  int64_t inner;                ///< elements of what one tuple picks
  llvm::ArrayRef<int64_t> dims; ///< the indexed dims, in x's type
  Shape strides;                ///< in rows

  IndexTuples(const Type &x, const Type &indices, int64_t batch);
  /// The row of x, over all batches, that a tuple of all batches names; -1 if an index is outside its axis.
  int64_t rowOf(int64_t tuple, llvm::ArrayRef<double> indices) const;
};

/// Operands 0 and 1 are x and indices as above: (C1) i64 or i32 indices, (C2) batch dims that both share and that leave
/// an axis in each, (C3) a depth of 1 to what is left of x's rank.
llvm::Error checkIndexTuples(const OpInfo &info, llvm::ArrayRef<Type> operands, int64_t batch);

} // namespace fsdpc
