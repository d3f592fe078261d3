// Moves a reshape of a transpose before the transpose.
#pragma once

#include "ir/builder.h"

namespace fsdpc {

/// Equal to reshaping the transpose's result to `shape`, as a transpose of a reshape. Null where that is impossible
/// because the reshape merges axes that the transpose made adjacent. Axes of size 1 are never an obstacle.
///     %t = transpose %x {1,0,2} : [6,4,8]; reshape %t [2,3,4,8]     ->     %r = reshape %x [4,2,3,8]; transpose %r
///     {1,2,0,3}
Value *reshapeBeforeTranspose(const Node &transpose, llvm::ArrayRef<int64_t> shape, Builder &builder);

} // namespace fsdpc
