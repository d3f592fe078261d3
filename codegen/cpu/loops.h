// Elementwise chains as loop nests of the host.
#pragma once

#include "codegen/common/section.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

/// Prints `attributes` over the node's operands as loops, results as yielded.
void emitHostLoops(SectionWriter &writer, const Node &node, const FusedAttributes &attributes);

} // namespace fsdpc
