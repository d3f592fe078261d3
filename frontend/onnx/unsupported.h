// Which nodes of a file no translation exists for, told all at once.
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

/// "" if every node has a translation. Else a message that lists every node that has none, with name, op, domain, opset
/// and the shapes of its inputs as far as libonnx can infer them, and how to export without it where that is known.
/// Nodes in bodies of control flow are listed too. `mayExpand`: expandFunctions will run again, so what it replaces is
/// not listed.
std::string unsupportedNodes(const OnnxModel &model, bool mayExpand = false);

} // namespace fsdpc
