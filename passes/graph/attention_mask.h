// What masks between attention scores and their softmax become.
#pragma once

#include "ir/ops/attributes.h"
#include "passes/graph/mask_structure.h"

namespace fsdpc {

/// Gives the attention the masks: causal and windowed ones as attributes, the others as one additive operand, which is
/// returned, with leading axes regrouped to `leading` (batch, heads) and no larger than necessary; null for none. What
/// a mask hides: mask_structure.h.
Value *joinMasks(llvm::ArrayRef<ScoreMask> masks, llvm::ArrayRef<int64_t> leading, MaskStructures &structures,
                 AttentionAttributes &attributes, Builder &builder);

} // namespace fsdpc
