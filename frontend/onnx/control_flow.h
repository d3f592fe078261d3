// Unrolls If, Loop and Scan while the graph is still ONNX, so that neither the recovery of parameters nor the
// translation sees them.
#pragma once

#include "frontend/onnx/import.h"
#include "frontend/onnx/model.h"

namespace fsdpc {

/// The maximum number of iterations of a loop.
constexpr int64_t maxIterations = 1024;

/// If, Loop or Scan of ai.onnx.
bool isControlFlow(const onnx::NodeProto &node);
bool hasControlFlow(const OnnxModel &model);

/// Replaces each If by the chosen branch, and each Loop and Scan by one copy of the body per iteration, at any nesting
/// depth. Values of iteration i are named `x.i`. Initializers of bodies become initializers of the graph. The
/// controlling values (conditions, trip counts, the dims that a Scan iterates over) must follow from constants and from
/// shapes, with the dims that `options` sets. Otherwise, and beyond maxIterations or maxExpandedNodes, an error names
/// the node and says what to do.
llvm::Error unrollControlFlow(OnnxModel &model, const ImportOptions &options);

} // namespace fsdpc
