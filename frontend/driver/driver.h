// The command line of fsdpc: reads the input, runs the pipeline, writes the requested output. The only part that uses
// all others.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include <string>

namespace fsdpc {

/// Arguments without the program's name. Prints errors to stderr and returns the exit code: 0, 1 (the model or the
/// file), 2 (the command line) or 70 (an internal error).
int runCompiler(llvm::ArrayRef<std::string> arguments);

} // namespace fsdpc
