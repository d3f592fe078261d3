// Max and average pooling over 1 to 3 spatial axes, with independent planes [N * C]. Sums have the order of the cpu
// target's, so results are bitwise identical.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// indices: flat index of the maximum within the plane of x; the first of equal values; NaN wins over any number.
void maxPool(const Context &c, const PoolShape &shape, const float *x, float *y, std::int32_t *indices);
void maxPoolGrad(const Context &c, const PoolShape &shape, const float *dy, const std::int32_t *indices, float *dx);
/// Sum of a window divided by its elements inside x, or with countIncludePad by all of them.
void averagePool(const Context &c, const PoolShape &shape, const float *x, float *y);
void averagePoolGrad(const Context &c, const PoolShape &shape, const float *dy, float *dx);

} // namespace fsdpc::rt
