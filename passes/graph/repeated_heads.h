// Keys and values that were repeated so that each query head has its own copy.
#pragma once

#include "ir/builder.h"

namespace fsdpc {

/// If each index of `axis` of x is repeated consecutively, returns x without the repetition. Null if x is not built
/// that way, or in more steps than exporters use. A repetition is a broadcast of a new axis after `axis`, merged by a
/// reshape, with transposes anywhere. Attention on grouped queries does not need it.
///     %g = broadcast (reshape %k [B,2,1,S,D]) [B,2,3,S,D]; %x = reshape %g [B,6,S,D]     axis 1     ->     %k
///     [B,2,S,D]
Value *withoutRepetition(Value *x, int64_t axis, Builder &builder);

} // namespace fsdpc
