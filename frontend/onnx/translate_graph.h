// Nodes of the repaired ONNX graph -> a module of the graph stage.
#pragma once

#include "frontend/onnx/inputs.h"
#include "frontend/onnx/parameters.h"

namespace fsdpc {

/// The module that import.h describes. Nodes that cannot be translated come in one error; what depends on them is
/// skipped.
llvm::Expected<std::unique_ptr<Module>> translateGraph(const OnnxModel &model, const RecoveredParameters &recovered,
                                                       llvm::ArrayRef<GraphInput> inputs, const ImportOptions &options,
                                                       std::vector<std::string> &remarks);

} // namespace fsdpc
