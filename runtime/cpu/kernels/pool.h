// Max and average pooling over 1 to 3 spatial axes, planes [N * C] independent of each other.
#pragma once

#include "runtime/cpu/kernels/address.h"

namespace fsdpc::rt {

/// Spatial axes are three: missing ones come first, with size and kernel 1. Every window touches the input.
struct PoolShape {
  std::int64_t planes = 1;
  std::int64_t input[3] = {1, 1, 1}, output[3] = {1, 1, 1};
  std::int64_t kernel[3] = {1, 1, 1}, strides[3] = {1, 1, 1}, dilations[3] = {1, 1, 1}, padsBefore[3] = {0, 0, 0};
  bool countIncludePad = false;
};

/// indices: flat index of the maximum within the plane of x; the first of equals; NaN wins over any number.
void maxPool(const Context &c, const PoolShape &shape, const float *x, float *y, std::int32_t *indices);
void maxPoolGrad(const Context &c, const PoolShape &shape, const float *dy, const std::int32_t *indices, float *dx);
/// Sum of a window divided by its elements inside x, or with countIncludePad by all of them.
void averagePool(const Context &c, const PoolShape &shape, const float *x, float *y);
void averagePoolGrad(const Context &c, const PoolShape &shape, const float *dy, float *dx);

} // namespace fsdpc::rt
