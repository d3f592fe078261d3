// `fsdpc init MODEL.onnx [-o FILE]`: a configuration to start from. `fsdpc init --config OTHER [-o FILE]`: the same
// options as the file of another trainer.
#pragma once

#include "frontend/onnx/import.h"
#include "frontend/options/option_schema.h"

namespace fsdpc {

/// Prints, or writes to --output, a commented configuration for this model on this machine, which --config reads. What
/// the file does not decide is left as a comment. Error: the output file exists.
llvm::Error initConfig(llvm::StringRef path, const OptionValues &values);

/// Prints, or writes to --output, what was given: options of the compiler, the program and the launcher. Error: as
/// above.
llvm::Error initFromConfig(const OptionValues &values);

} // namespace fsdpc
