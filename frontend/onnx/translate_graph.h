// Nodes of the repaired ONNX graph -> a module of the graph stage.
#pragma once

#include "frontend/onnx/inputs.h"
#include "frontend/onnx/parameters.h"

namespace fsdpc {

/// Builds the module that import.h describes. One error reports all nodes that cannot be translated. Nodes that depend
/// on them are skipped.
llvm::Expected<std::unique_ptr<Module>> translateGraph(const OnnxModel &model, const RecoveredParameters &recovered,
                                                       llvm::ArrayRef<GraphInput> inputs, const ImportOptions &options,
                                                       std::vector<std::string> &remarks);

} // namespace fsdpc
