// Ops that ONNX itself defines by simpler ones.
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

/// Replaces nodes of ai.onnx that no translation exists for by their function bodies (Attention, RotaryEmbedding, ...),
/// where libonnx has one for their types. Others stay as they are.
llvm::Error expandFunctions(OnnxModel &model);

/// Does ONNX define the node's op by simpler ones?
bool hasFunctionBody(const OnnxModel &model, const onnx::NodeProto &node);

} // namespace fsdpc
