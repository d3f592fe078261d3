// Index tuples, with which gather_nd and scatter_nd address rows of a tensor.
#pragma once

#include "ir/op.h"

namespace fsdpc {

/// The position in [0, size) for an index in [-size, size). -1 for other indices.
int64_t normalisedIndex(double index, int64_t size);

/// x [batch dims..., indexed dims..., inner dims...] and indices [batch dims..., tuple dims..., depth], whose last axis
/// holds an index for each indexed dim.
struct IndexTuples {
  int64_t batch, depth;
  int64_t batches;              ///< product of the batch dims
  int64_t tuples;               ///< index tuples per batch
  int64_t rows;                 ///< product of the indexed dims
  int64_t inner;                ///< elements of the row that one tuple picks
  llvm::ArrayRef<int64_t> dims; ///< the indexed dims, in x's type
  Shape strides;                ///< of the indexed dims, in rows

  IndexTuples(const Type &x, const Type &indices, int64_t batch);
  /// The row of x, over all batches, that tuple `tuple` of all batches selects. -1 if an index is outside its axis.
  int64_t rowOf(int64_t tuple, llvm::ArrayRef<double> indices) const;
};

/// Checks operands 0 and 1, x and indices as above: (C1) i64 or i32 indices, (C2) shared batch dims that leave an axis
/// in each operand, (C3) a depth from 1 to the remaining rank of x.
llvm::Error checkIndexTuples(const OpInfo &info, llvm::ArrayRef<Type> operands, int64_t batch);

} // namespace fsdpc
