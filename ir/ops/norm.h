// What layer_norm, rms_norm and their derivatives add on the way.
#pragma once

#include "ir/node.h"

namespace fsdpc {

/// The residual, which a norm adds to x before it normalises, or the addend, which a norm's gradient adds to dx. Null:
/// the node has none, or is no norm. It has the type of x, and is the last operand; the last result of a norm that has
/// a residual is the sum.
Value *addedOperand(const Node &node);

/// May the kernels of all targets write the result over the operand? Of nodes with an added operand, y and the sum over
/// x and the residual, dx over the addend: an element of these is read before it is written, by the thread that writes
/// it, and not read again.
bool isRowWrittenOver(const Node &node, unsigned result, unsigned operand);

} // namespace fsdpc
