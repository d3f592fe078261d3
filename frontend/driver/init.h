// `fsdpc init MODEL.onnx [-o FILE]`: a configuration to start from.
#pragma once

#include "frontend/onnx/import.h"
#include "frontend/options/option_schema.h"

namespace fsdpc {

/// Prints, or writes to --output, a commented configuration for this model on this machine, which --config reads. What
/// the file does not decide is left as a comment. Error: the output file exists.
llvm::Error initConfig(llvm::StringRef path, const OptionValues &values);

} // namespace fsdpc
