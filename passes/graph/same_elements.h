// Whether two small values are the same numbers, made twice.
#pragma once

#include "ir/node.h"

namespace fsdpc {

/// True if `a` and `b` hold the same elements in the same order, whatever axes of size 1 their shapes have: both are
/// made by the same ops from the same values. False where that is not found in a few steps.
///     %a = reshape %ids [B,1,S,1]; %b = reshape (reshape %ids [B,S,1]) [B,1,1,S]     true
bool holdSameElements(Value *a, Value *b);

} // namespace fsdpc
