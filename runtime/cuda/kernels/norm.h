// Layer and RMS normalisation with their derivatives. T: float or Bfloat16; statistics are float, and so is all
// arithmetic. An order of summation depends on shapes only.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/bfloat16.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// y may be x.
template <class T>
void layerNorm(const Context &c, const NormShape &shape, const T *x, const T *gamma, const T *beta, T *y, float *mean,
               float *rstd);
/// Scratch for the partial sums of dgamma and dbeta, bytes; exact.
std::int64_t layerNormGradScratchBytes(const NormShape &shape);
/// dx may be dy. G: T, or float for gradients that are summed on in float.
template <class T, class G>
void layerNormGrad(const Context &c, const NormShape &shape, const T *dy, const T *x, const T *gamma, const float *mean,
                   const float *rstd, T *dx, G *dgamma, G *dbeta, Workspace workspace);

/// y may be x.
template <class T>
void rmsNorm(const Context &c, const NormShape &shape, const T *x, const T *gamma, T *y, float *rstd);
/// Scratch for the partial sums of dgamma, bytes; exact.
std::int64_t rmsNormGradScratchBytes(const NormShape &shape);
/// dx may be dy. G: T, or float for gradients that are summed on in float.
template <class T, class G>
void rmsNormGrad(const Context &c, const NormShape &shape, const T *dy, const T *x, const T *gamma, const float *rstd,
                 T *dx, G *dgamma, Workspace workspace);

} // namespace fsdpc::rt
