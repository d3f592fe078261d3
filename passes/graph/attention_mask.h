// What masks between attention scores and their softmax become.
#pragma once

#include "ir/ops/attributes.h"
#include "passes/graph/mask_structure.h"

namespace fsdpc {

/// Operands of attention; null for none.
struct JoinedMasks {
  /// f32, their leading axes regrouped to (batch, heads), no larger than necessary: two where their sum would be as
  /// large as the scores although neither is.
  llvm::SmallVector<Value *, 2> added;
  Value *documents = nullptr; ///< i64 [batch or 1, keys]
};

/// Gives the attention the masks: causal and windowed ones as attributes, documents as an operand, the others as
/// additive operands. `leading`: batch and heads. What a mask hides: mask_structure.h.
JoinedMasks joinMasks(llvm::ArrayRef<ScoreMask> masks, llvm::ArrayRef<int64_t> leading, MaskStructures &structures,
                      AttentionAttributes &attributes, Builder &builder);

} // namespace fsdpc
