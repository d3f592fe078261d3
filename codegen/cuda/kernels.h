// Elementwise chains as generated kernels.
#pragma once

#include "codegen/common/section.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

/// Prints the launch of a kernel that computes `attributes` over the node's operands; the kernel goes to kernels.cuh.
void emitKernel(SectionWriter &writer, const Node &node, const FusedAttributes &attributes);

} // namespace fsdpc
