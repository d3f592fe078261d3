// The command line of fsdpc: reading input, running the pipeline, writing what was asked for. The only place that sees
// all parts.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include <string>

namespace fsdpc {

/// Arguments without the program's name. Prints errors to stderr and returns the exit code: 0, 1 (the model or the
/// file), 2 (the command line) or 70 (our own fault).
int runCompiler(llvm::ArrayRef<std::string> arguments);

} // namespace fsdpc
