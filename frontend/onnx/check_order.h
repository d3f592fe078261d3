// Checks that every node reads only names that are defined before it.
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

/// Describes the first node of the graph that reads a name that nothing before it defines, and the cause: a missing
/// initializer or input, nodes in the wrong order, or a cycle. Returns "" if there is none. Graphs inside nodes are
/// left to libonnx.
std::string misplacedInput(const OnnxModel &model);

} // namespace fsdpc
