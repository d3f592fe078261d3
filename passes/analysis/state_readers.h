// The last readers of states.
#pragma once

#include "ir/module.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

/// Per state that the function reads, the last node that uses the read value, also through views and reshapes. A
/// collective reads its operand, on other ranks too, until its wait.
llvm::StringMap<Node *> lastReaders(const Function &function);

} // namespace fsdpc
