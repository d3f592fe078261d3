// Does every node read only what is there?
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

/// The first node of the graph that reads a name which nothing before it gives, and why: an initializer or input is
/// missing, the nodes are in the wrong order, or they form a cycle. "" if there is none. Graphs inside of nodes are
/// libonnx's to check.
std::string misplacedInput(const OnnxModel &model);

} // namespace fsdpc
