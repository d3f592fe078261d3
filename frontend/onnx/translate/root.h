// Roots of sums of powers: the lengths that norms and pools compute.
#pragma once

#include "frontend/onnx/translate/node_translation.h"

namespace fsdpc {

/// The p-th root of `sum`. Requires sum >= 0. The derivative is 0 where the sum is 0, as in PyTorch's norms.
Value *rootOfSum(NodeTranslation &t, Value *sum, int64_t p);

} // namespace fsdpc
