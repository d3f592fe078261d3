// Operands that layer_norm, rms_norm and their derivatives add.
#pragma once

#include "ir/node.h"

namespace fsdpc {

/// The residual that a norm adds to x before it normalizes, or the addend that a norm's gradient adds to dx. Null if
/// the node has none or is no norm. It is the last operand and has the type of x. With a residual, the last result of a
/// norm is the sum.
Value *addedOperand(const Node &node);

/// True if the kernels of all targets may write the result over the operand. This holds for nodes with an added
/// operand: y and the sum over x and the residual, dx over the addend. Each element of these is read before it is
/// written, by the thread that writes it, and is not read again.
bool isRowWrittenOver(const Node &node, unsigned result, unsigned operand);

} // namespace fsdpc
