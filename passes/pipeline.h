// The whole compiler as one list.
#pragma once

#include "passes/pass.h"
#include "llvm/ADT/ArrayRef.h"

namespace fsdpc {

/// Every pass in the order of the default pipeline; passes that run more than once appear more than once.
llvm::ArrayRef<const Pass *> pipeline();
/// The first pass that uses options or the target. The result of the passes before it is the same in every plan.
const Pass &firstPassOfAPlan();
/// The pass of this name; null if there is none.
const Pass *findPass(llvm::StringRef name);

} // namespace fsdpc
