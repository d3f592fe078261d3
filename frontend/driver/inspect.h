// `fsdpc inspect MODEL.onnx [--json]`.
#pragma once

#include "frontend/onnx/import.h"
#include "frontend/options/option_schema.h"

namespace fsdpc {

/// What the import makes of the file alone, with or without its weights.
llvm::Expected<ImportedModel> inspected(llvm::StringRef path, const OptionValues &values);

/// Prints what the import makes of the file, and the units that a compile with these options would make.
llvm::Error inspect(llvm::StringRef path, const OptionValues &values);

} // namespace fsdpc
