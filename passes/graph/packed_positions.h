// Positions of packed samples, which start again in each document: transformers compares them instead of indices.
#pragma once

#include "ir/node.h"

namespace fsdpc {

/// base + shift, with sums with constants removed.
struct ShiftedPositions {
  Value *base;
  double shift = 0;
};
ShiftedPositions takeShiftOff(Value *positions);

/// True if a new document begins exactly where a position is not one more than the one before, so that within a
/// document positions differ as indices do:
///     %before = slice (concat %first, %positions) starts(0, 0); %steps = sub %positions, %before
///     %documents = cumulative_sum (cast (not (equal %steps, 1)))
/// Both values may have been reshaped; positions are on their last axis.
bool beginWherePositionsDo(Value *documents, Value *positions);

} // namespace fsdpc
