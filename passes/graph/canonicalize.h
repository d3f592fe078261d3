// The rules of canonicalize, by family. Each gives a value that computes the same in the preferred form, built at the
// builder's insertion point, or null if the node has that form already. A rule never makes what another one undoes.
#pragma once

#include "ir/builder.h"

namespace fsdpc {

/// x*1, x+0, double neg and not, casts there and back, small powers, select of a known condition; a number stands on
/// the right of
/// + and *; what is computed on broadcasts of one shape is computed first and then broadcast.
Value *canonicalizeElementwise(Node &node, Builder &builder);

/// Reshapes, transposes, broadcasts and slices in a row become one; what changes nothing disappears; reshapes and
/// slices move in front of transposes, where they meet other reshapes; a gather of neighbours is a slice; sums over
/// size 1 are reshapes.
Value *canonicalizeShape(Node &node, Builder &builder);

/// Transposed operands become transpose flags; batch dims that one operand only repeats are dropped.
Value *canonicalizeMatmul(Node &node, Builder &builder);

} // namespace fsdpc
