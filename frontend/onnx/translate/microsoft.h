// What the translations of com.microsoft have in common.
#pragma once

#include "frontend/onnx/translate/node_translation.h"

namespace fsdpc {

/// Null for an omitted one.
Value *optionalInput(NodeTranslation &t, unsigned i);
/// x, if there is nothing to add.
Value *plus(NodeTranslation &t, Value *x, Value *addend);
/// The last two axes swapped.
Value *swapped(NodeTranslation &t, Value *x);
/// Rows of a table by indices [B, S].
Value *embedded(NodeTranslation &t, Value *table, Value *indices);

} // namespace fsdpc
