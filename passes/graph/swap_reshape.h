// A reshape behind a transpose, done in front of it.
#pragma once

#include "ir/builder.h"

namespace fsdpc {

/// The same as reshaping the transpose's result to `shape`, as a transpose of a reshape; null where that is impossible:
/// the reshape joins axes that the transpose brought together. Axes of size 1 never stand in the way.
///     %t = transpose %x {1,0,2} : [6,4,8]; reshape %t [2,3,4,8]     ->     %r = reshape %x [4,2,3,8]; transpose %r
///     {1,2,0,3}
Value *reshapeBeforeTranspose(const Node &transpose, llvm::ArrayRef<int64_t> shape, Builder &builder);

} // namespace fsdpc
