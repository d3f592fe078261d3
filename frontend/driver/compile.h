// One compile, from a file to a module at the requested stage.
#pragma once

#include "frontend/compilation/compilation.h"

namespace fsdpc {

/// Reads MODEL.onnx or STAGE.fsir and runs the pipeline; a planned result has passed the schedule checker.
llvm::Expected<Compilation> compileModule(llvm::StringRef input, OptionValues &values);

} // namespace fsdpc
