// Helpers for the translations of com.microsoft.
#pragma once

#include "frontend/onnx/translate/node_translation.h"

namespace fsdpc {

/// Input i; null if it is omitted.
Value *optionalInput(NodeTranslation &t, unsigned i);
/// x + addend; x if `addend` is null.
Value *plus(NodeTranslation &t, Value *x, Value *addend);
/// The last two axes swapped.
Value *swapped(NodeTranslation &t, Value *x);
/// Rows of a table by indices [B, S].
Value *embedded(NodeTranslation &t, Value *table, Value *indices);

} // namespace fsdpc
