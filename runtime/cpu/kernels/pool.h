// Max and average pooling over 1 to 3 spatial axes, planes [N * C] independent of each other.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// indices: flat index of the maximum within the plane of x, the first of equal values. NaN is larger than any number.
void maxPool(const Context &c, const PoolShape &shape, const float *x, float *y, std::int32_t *indices);
void maxPoolGrad(const Context &c, const PoolShape &shape, const float *dy, const std::int32_t *indices, float *dx);
/// The sum of a window divided by the number of its elements inside x, or with countIncludePad by that of all its
/// elements.
void averagePool(const Context &c, const PoolShape &shape, const float *x, float *y);
void averagePoolGrad(const Context &c, const PoolShape &shape, const float *dy, float *dx);

} // namespace fsdpc::rt
