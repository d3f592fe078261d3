// Expansion of ops that ONNX itself defines by simpler ones.
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

/// Replaces nodes of ai.onnx without a translation by their function bodies (Attention, RotaryEmbedding, ...), if
/// libonnx has one for their types. Others stay as they are.
llvm::Error expandFunctions(OnnxModel &model);

/// True if ONNX defines the node's op by simpler ones.
bool hasFunctionBody(const OnnxModel &model, const onnx::NodeProto &node);

} // namespace fsdpc
