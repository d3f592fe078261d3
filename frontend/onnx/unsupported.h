// Which nodes of a file no translation exists for, told all at once.
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

/// "" if every node has a translation. Else a message that lists every node that has none, with name, op, domain, opset
/// and the shapes of its inputs as far as libonnx can infer them.
std::string unsupportedNodes(const OnnxModel &model);

} // namespace fsdpc
