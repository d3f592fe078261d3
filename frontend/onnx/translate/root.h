// Roots of sums of powers: the lengths that norms and pools compute.
#pragma once

#include "frontend/onnx/translate/node_translation.h"

namespace fsdpc {

/// The p-th root of `sum`, which is not negative. Its derivative is 0 where the sum is, as PyTorch's norms have it.
Value *rootOfSum(NodeTranslation &t, Value *sum, int64_t p);

} // namespace fsdpc
