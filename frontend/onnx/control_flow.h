// If, Loop and Scan are taken apart while the graph is still ONNX: what recovers parameters and translates nodes sees
// none of them.
#pragma once

#include "frontend/onnx/import.h"
#include "frontend/onnx/model.h"

namespace fsdpc {

/// Loops run at most this often.
constexpr int64_t mostIterations = 1024;

/// If, Loop or Scan of ai.onnx.
bool isControlFlow(const onnx::NodeProto &node);
bool hasControlFlow(const OnnxModel &model);

/// Puts the chosen branch in the place of each If, and the body once per iteration in the place of each Loop and Scan,
/// however nested. Values of iteration i are named `x.i`; initializers of bodies become initializers of the graph.
/// What decides (conditions, trip counts, the dims that a Scan runs over) must follow from constants and from shapes,
/// with the dims that `options` sets; else, and for more than mostIterations or mostExpandedNodes, an error names the
/// node and says what to do.
llvm::Error unrollControlFlow(OnnxModel &model, const ImportOptions &options);

} // namespace fsdpc
