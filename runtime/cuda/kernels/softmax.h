// Softmax and log-softmax over any axis, with their derivatives in terms of the result y. T: float or Bfloat16;
// arithmetic is float. Elements may be -infinity. A line of only -infinity yields NaN, as does a NaN.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// y may be x; dx may be dy.
template <class T>
void softmax(const Context &c, const SoftmaxShape &shape, const T *x, T *y);
template <class T>
void softmaxGrad(const Context &c, const SoftmaxShape &shape, const T *y, const T *dy, T *dx);
template <class T>
void logSoftmax(const Context &c, const SoftmaxShape &shape, const T *x, T *y);
template <class T>
void logSoftmaxGrad(const Context &c, const SoftmaxShape &shape, const T *y, const T *dy, T *dx);

} // namespace fsdpc::rt
