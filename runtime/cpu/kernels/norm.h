// Layer and RMS normalisation, softmax and log-softmax with their derivatives. Sums over a row are those of long_sum.h.
// For the derivatives of norms, they accumulate 256 columns in f32, in as many lanes as the machine has, and then in
// f64: the error is at most 36 * 2^-24 of the sum of absolute terms with eight lanes. Sums over rows, dgamma and dbeta,
// accumulate 16 rows in f32 and then in f64: 16 * 2^-24. The roundings of each term come in addition. The order depends
// on shapes only.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// Normalises x or, with a residual, x + residual, which is stored in `sum`. The results are those of a separate
/// addition. Without a residual, residual and sum are null. y and sum may alias x and residual in either order, but not
/// each other.
void layerNorm(const Context &c, const NormShape &shape, const float *x, const float *gamma, const float *beta,
               const float *residual, float *y, float *mean, float *rstd, float *sum);
inline void layerNorm(const Context &c, const NormShape &shape, const float *x, const float *gamma, const float *beta,
                      float *y, float *mean, float *rstd) {
  layerNorm(c, shape, x, gamma, beta, nullptr, y, mean, rstd, nullptr);
}
/// Scratch for the partial sums of dgamma and dbeta in bytes.
std::int64_t layerNormGradScratchBytes(const NormShape &shape);
/// dx may alias dy or addend. addend is added to dx unless it is null.
void layerNormGrad(const Context &c, const NormShape &shape, const float *dy, const float *x, const float *gamma,
                   const float *mean, const float *rstd, const float *addend, float *dx, float *dgamma, float *dbeta,
                   Workspace workspace);
inline void layerNormGrad(const Context &c, const NormShape &shape, const float *dy, const float *x, const float *gamma,
                          const float *mean, const float *rstd, float *dx, float *dgamma, float *dbeta,
                          Workspace workspace) {
  layerNormGrad(c, shape, dy, x, gamma, mean, rstd, nullptr, dx, dgamma, dbeta, workspace);
}

/// Same as layerNorm, without mean and beta.
void rmsNorm(const Context &c, const NormShape &shape, const float *x, const float *gamma, const float *residual,
             float *y, float *rstd, float *sum);
inline void rmsNorm(const Context &c, const NormShape &shape, const float *x, const float *gamma, float *y,
                    float *rstd) {
  rmsNorm(c, shape, x, gamma, nullptr, y, rstd, nullptr);
}
/// Scratch for the partial sums of dgamma in bytes.
std::int64_t rmsNormGradScratchBytes(const NormShape &shape);
/// Aliasing and addend as in layerNormGrad.
void rmsNormGrad(const Context &c, const NormShape &shape, const float *dy, const float *x, const float *gamma,
                 const float *rstd, const float *addend, float *dx, float *dgamma, Workspace workspace);
inline void rmsNormGrad(const Context &c, const NormShape &shape, const float *dy, const float *x, const float *gamma,
                        const float *rstd, float *dx, float *dgamma, Workspace workspace) {
  rmsNormGrad(c, shape, dy, x, gamma, rstd, nullptr, dx, dgamma, workspace);
}

/// y may alias x; dx may alias dy.
void softmax(const Context &c, const SoftmaxShape &shape, const float *x, float *y);
void softmaxGrad(const Context &c, const SoftmaxShape &shape, const float *y, const float *dy, float *dx);
void logSoftmax(const Context &c, const SoftmaxShape &shape, const float *x, float *y);
void logSoftmaxGrad(const Context &c, const SoftmaxShape &shape, const float *y, const float *dy, float *dx);

} // namespace fsdpc::rt
