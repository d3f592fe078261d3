// Rotary position embedding, with the meaning and arguments of the cpu target (runtime/cpu/kernels/rotary.h). T: float
// or Bfloat16, for all tensors.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// y may be x.
template <class T>
void rotary(const Context &c, const RotaryShape &shape, const T *x, const T *cos, const T *sin, T *y);

} // namespace fsdpc::rt
