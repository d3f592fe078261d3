// Reports all nodes of a file without a translation at once.
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

/// Returns "" if every node has a translation. Otherwise a message lists every node without one, with name, op, domain,
/// opset, the shapes of its inputs as far as libonnx can infer them, and, if known, how to export without it. Nodes in
/// bodies of control flow are included. `mayExpand`: expandFunctions will run again, so nodes that it replaces are not
/// listed.
std::string unsupportedNodes(const OnnxModel &model, bool mayExpand = false);

} // namespace fsdpc
