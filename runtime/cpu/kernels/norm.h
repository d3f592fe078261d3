// Layer and RMS normalisation, softmax and log-softmax with their derivatives. Sums over
// a row are those of wide_sum.h; of the derivatives of norms, f32 for 256 columns, in as many lanes as the machine has,
// and then f64: off by at most 36 * 2^-24 of the sum of absolute terms with eight lanes. Sums over rows, dgamma and
// dbeta, are f32 for 16 rows and then f64: 16 * 2^-24. The roundings of each term are beside that. Orders depend on
// shapes only.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// Normalises x or, with a residual, x + residual, which is stored in `sum`; the numbers are those of adding first.
/// Without one, residual and sum are null. y and sum may be x and residual, either way round, but not each other.
void layerNorm(const Context &c, const NormShape &shape, const float *x, const float *gamma, const float *beta,
               const float *residual, float *y, float *mean, float *rstd, float *sum);
inline void layerNorm(const Context &c, const NormShape &shape, const float *x, const float *gamma, const float *beta,
                      float *y, float *mean, float *rstd) {
  layerNorm(c, shape, x, gamma, beta, nullptr, y, mean, rstd, nullptr);
}
/// Scratch for the partial sums of dgamma and dbeta, bytes.
std::int64_t layerNormGradScratchBytes(const NormShape &shape);
/// dx may be dy or addend, which is added to it unless it is null.
void layerNormGrad(const Context &c, const NormShape &shape, const float *dy, const float *x, const float *gamma,
                   const float *mean, const float *rstd, const float *addend, float *dx, float *dgamma, float *dbeta,
                   Workspace workspace);
inline void layerNormGrad(const Context &c, const NormShape &shape, const float *dy, const float *x, const float *gamma,
                          const float *mean, const float *rstd, float *dx, float *dgamma, float *dbeta,
                          Workspace workspace) {
  layerNormGrad(c, shape, dy, x, gamma, mean, rstd, nullptr, dx, dgamma, dbeta, workspace);
}

/// As layerNorm, without mean and beta.
void rmsNorm(const Context &c, const NormShape &shape, const float *x, const float *gamma, const float *residual,
             float *y, float *rstd, float *sum);
inline void rmsNorm(const Context &c, const NormShape &shape, const float *x, const float *gamma, float *y,
                    float *rstd) {
  rmsNorm(c, shape, x, gamma, nullptr, y, rstd, nullptr);
}
/// Scratch for the partial sums of dgamma, bytes.
std::int64_t rmsNormGradScratchBytes(const NormShape &shape);
/// As layerNormGrad.
void rmsNormGrad(const Context &c, const NormShape &shape, const float *dy, const float *x, const float *gamma,
                 const float *rstd, const float *addend, float *dx, float *dgamma, Workspace workspace);
inline void rmsNormGrad(const Context &c, const NormShape &shape, const float *dy, const float *x, const float *gamma,
                        const float *rstd, float *dx, float *dgamma, Workspace workspace) {
  rmsNormGrad(c, shape, dy, x, gamma, rstd, nullptr, dx, dgamma, workspace);
}

/// y may be x; dx may be dy.
void softmax(const Context &c, const SoftmaxShape &shape, const float *x, float *y);
void softmaxGrad(const Context &c, const SoftmaxShape &shape, const float *y, const float *dy, float *dx);
void logSoftmax(const Context &c, const SoftmaxShape &shape, const float *x, float *y);
void logSoftmaxGrad(const Context &c, const SoftmaxShape &shape, const float *y, const float *dy, float *dx);

} // namespace fsdpc::rt
