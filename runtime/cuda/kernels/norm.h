// Layer and RMS normalisation with their derivatives. T: float or Bfloat16; statistics are float, and so is
// the arithmetic of elements. Sums over a row are double, of trees of a pack each (block.h); those over rows, which are
// dgamma and dbeta, of eight floats: off by at most 3 and 9 * 2^-24 of the sum of absolute terms, beside the roundings
// of each term. An order of summation depends on shapes only.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// Normalises x or, with a residual, x + residual rounded to T, which is stored in `sum`; the numbers are those of
/// adding first. Without one, residual and sum are null. y and sum may be x and residual, either way round, but not
/// each other.
template <class T>
void layerNorm(const Context &c, const NormShape &shape, const T *x, const T *gamma, const T *beta, const T *residual,
               T *y, float *mean, float *rstd, T *sum);
template <class T>
void layerNorm(const Context &c, const NormShape &shape, const T *x, const T *gamma, const T *beta, T *y, float *mean,
               float *rstd) {
  layerNorm<T>(c, shape, x, gamma, beta, nullptr, y, mean, rstd, nullptr);
}
/// Scratch for the partial sums of dgamma and dbeta, bytes; exact.
std::int64_t layerNormGradScratchBytes(const NormShape &shape);
/// dx may be dy or addend; that is added to dx, which was rounded to T before, unless it is null. G: T, or float for
/// gradients that are summed on in float.
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
/// Scratch for the partial sums of dgamma, bytes; exact.
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
