// Layer and RMS normalisation with their derivatives. T: float or Bfloat16; statistics and elementwise arithmetic are
// float. Sums over a row are accumulated in double from trees of one pack each (block.h). Sums over rows (dgamma and
// dbeta) are accumulated in double from sums of eight floats. Their errors are at most 3 and 9 * 2^-24 of the sum of
// absolute terms, plus the rounding of each term. The order of summation depends only on shapes.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// Normalises x or, with a residual, x + residual rounded to T, which is stored in `sum`. The values are those of a
/// separate addition. Without a residual, residual and sum are null. y and sum may alias x and residual, in either
/// combination, but not each other.
template <class T>
void layerNorm(const Context &c, const NormShape &shape, const T *x, const T *gamma, const T *beta, const T *residual,
               T *y, float *mean, float *rstd, T *sum);
template <class T>
void layerNorm(const Context &c, const NormShape &shape, const T *x, const T *gamma, const T *beta, T *y, float *mean,
               float *rstd) {
  layerNorm<T>(c, shape, x, gamma, beta, nullptr, y, mean, rstd, nullptr);
}
/// Scratch for the partial sums of dgamma and dbeta, in bytes, exact.
std::int64_t layerNormGradScratchBytes(const NormShape &shape);
/// dx may be dy or addend. The addend, unless null, is added to dx after dx was rounded to T. G: T, or float for
/// gradients that are accumulated in float.
template <class T, class G>
void layerNormGrad(const Context &c, const NormShape &shape, const T *dy, const T *x, const T *gamma, const float *mean,
                   const float *rstd, const T *addend, T *dx, G *dgamma, G *dbeta, Workspace workspace);
template <class T, class G>
void layerNormGrad(const Context &c, const NormShape &shape, const T *dy, const T *x, const T *gamma, const float *mean,
                   const float *rstd, T *dx, G *dgamma, G *dbeta, Workspace workspace) {
  layerNormGrad<T, G>(c, shape, dy, x, gamma, mean, rstd, nullptr, dx, dgamma, dbeta, workspace);
}

/// As layerNorm, without mean and beta.
template <class T>
void rmsNorm(const Context &c, const NormShape &shape, const T *x, const T *gamma, const T *residual, T *y, float *rstd,
             T *sum);
template <class T>
void rmsNorm(const Context &c, const NormShape &shape, const T *x, const T *gamma, T *y, float *rstd) {
  rmsNorm<T>(c, shape, x, gamma, nullptr, y, rstd, nullptr);
}
/// Scratch for the partial sums of dgamma, in bytes, exact.
std::int64_t rmsNormGradScratchBytes(const NormShape &shape);
/// As layerNormGrad.
template <class T, class G>
void rmsNormGrad(const Context &c, const NormShape &shape, const T *dy, const T *x, const T *gamma, const float *rstd,
                 const T *addend, T *dx, G *dgamma, Workspace workspace);
template <class T, class G>
void rmsNormGrad(const Context &c, const NormShape &shape, const T *dy, const T *x, const T *gamma, const float *rstd,
                 T *dx, G *dgamma, Workspace workspace) {
  rmsNormGrad<T, G>(c, shape, dy, x, gamma, rstd, nullptr, dx, dgamma, workspace);
}

} // namespace fsdpc::rt
