// The rules of canonicalize, by family. Each returns an equal value in the preferred form, built at the builder's
// insertion point, or null if the node already has that form. No rule undoes another one.
#pragma once

#include "ir/builder.h"

namespace fsdpc {

/// x*1, x+0, double neg and not, casts there and back, small powers, select with a known condition. Constants become
/// the right operand of + and *. A computation on broadcasts of one shape is done before the broadcast.
Value *canonicalizeElementwise(Node &node, Builder &builder);

/// Merges consecutive reshapes, transposes, broadcasts and slices. Removes those without effect. Moves reshapes and
/// slices before transposes, next to other reshapes. A gather of consecutive elements becomes a slice; sums over size 1
/// become reshapes.
Value *canonicalizeShape(Node &node, Builder &builder);

/// Transposed operands become transpose flags. Batch dims that one operand only repeats are dropped.
Value *canonicalizeMatmul(Node &node, Builder &builder);

} // namespace fsdpc
