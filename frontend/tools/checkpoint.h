// `fsdpc checkpoint`: runs the program that looks at checkpoints (runtime/checkpoint_tool).
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace fsdpc {

/// Returns its exit code. `arguments`: those after `checkpoint`.
llvm::Expected<int> runCheckpointTool(llvm::ArrayRef<std::string> arguments);

} // namespace fsdpc
