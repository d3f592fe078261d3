// Elementwise chains as loop nests of the host.
#pragma once

#include "codegen/common/section.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

/// Prints the chain `attributes` over the node's operands as loops. The yielded values are the node's results.
void emitHostLoops(SectionWriter &writer, const Node &node, const FusedAttributes &attributes);

} // namespace fsdpc
