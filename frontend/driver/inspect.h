// `fsdpc inspect MODEL.onnx [--json]`.
#pragma once

#include "frontend/onnx/import.h"
#include "frontend/options/option_schema.h"

namespace fsdpc {

/// Prints what the import makes of the file, and the units that a compile with these options would make.
llvm::Error inspect(llvm::StringRef path, const OptionValues &values);

} // namespace fsdpc
