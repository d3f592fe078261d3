// Keys and values that were repeated so that each query head finds a head of its own.
#pragma once

#include "ir/builder.h"

namespace fsdpc {

/// If each index of `axis` of x stands there a number of times in a row, what is repeated: x with as many fewer of
/// them. Null if that is not how x is made, or if it is made in more steps than exporters take. A repetition is a
/// broadcast of a new axis behind `axis`, joined by a reshape, with transposes anywhere; attention on grouped queries
/// needs none.
///     %g = broadcast (reshape %k [B,2,1,S,D]) [B,2,3,S,D]; %x = reshape %g [B,6,S,D]     axis 1     ->     %k
///     [B,2,S,D]
Value *withoutRepetition(Value *x, int64_t axis, Builder &builder);

} // namespace fsdpc
