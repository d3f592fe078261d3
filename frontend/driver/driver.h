// The command line of fsdpc: reading input, running the pipeline, writing what was asked for. The only place that sees
// all parts.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include <string>

namespace fsdpc {

/// Arguments without the program's name. Prints errors to stderr and returns the exit code of interface.md: 0, 1, 2
/// or 70.
int runCompiler(llvm::ArrayRef<std::string> arguments);

} // namespace fsdpc
