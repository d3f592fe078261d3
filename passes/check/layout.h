// Are the train module's states all there, once each, in the planned module's segments?
#pragma once

#include "ir/module.h"
#include "llvm/Support/Error.h"

namespace fsdpc::check {

/// (S8): every parameter lies whole in one slot of one segment, slots are disjoint and inside, the ranks' shards make
/// up the segment, replicas repeat it; every optimizer state, scalar and buffer has its counterpart, with the same type
/// and the same initial value.
llvm::Error checkLayout(const Module &train, const Module &planned);

} // namespace fsdpc::check
