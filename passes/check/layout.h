// Checks that each state of the train module is stored exactly once in the planned module.
#pragma once

#include "ir/module.h"
#include "llvm/Support/Error.h"

namespace fsdpc::check {

/// (S8): every parameter is entirely in one slot of one segment; slots are disjoint and inside; the ranks' shards
/// together form the segment; replicas copy it. Every optimizer state, scalar and buffer has its counterpart, with the
/// same type and the same initial value.
llvm::Error checkLayout(const Module &train, const Module &planned);

} // namespace fsdpc::check
