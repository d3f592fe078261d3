// The verifier: structure, types, and the rules of the module's stage. Runs after every pass.
#pragma once

#include "ir/module.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

/// Success, or the first violated invariant with its label (V1).. from ir/README.md, and with function, node and op.
llvm::Error verify(const Module &module);

} // namespace fsdpc
