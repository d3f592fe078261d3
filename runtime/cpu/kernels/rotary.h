// Rotary position embedding: rotates pairs of elements that are half a vector apart by the angles in tables.
//
//   y[j]       = x[j]       * cos[j]       - x[j + w/2] * sin[j]
//   y[j + w/2] = x[j + w/2] * cos[j + w/2] + x[j]       * sin[j + w/2]
//
// Transposed, which is the derivative, sin[j] and sin[j + w/2] are swapped and negated.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// y may alias x.
void rotary(const Context &c, const RotaryShape &shape, const float *x, const float *cos, const float *sin, float *y);

} // namespace fsdpc::rt
