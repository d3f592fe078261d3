// Layer and RMS normalisation, softmax and log-softmax with their derivatives. Sums over a row are f32, in an order
// that depends on shapes only.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// y may be x.
void layerNorm(const Context &c, const NormShape &shape, const float *x, const float *gamma, const float *beta,
               float *y, float *mean, float *rstd);
/// Scratch for the partial sums of dgamma and dbeta, bytes.
std::int64_t layerNormGradScratchBytes(const NormShape &shape);
/// dx may be dy.
void layerNormGrad(const Context &c, const NormShape &shape, const float *dy, const float *x, const float *gamma,
                   const float *mean, const float *rstd, float *dx, float *dgamma, float *dbeta, Workspace workspace);

/// y may be x.
void rmsNorm(const Context &c, const NormShape &shape, const float *x, const float *gamma, float *y, float *rstd);
/// Scratch for the partial sums of dgamma, bytes.
std::int64_t rmsNormGradScratchBytes(const NormShape &shape);
/// dx may be dy.
void rmsNormGrad(const Context &c, const NormShape &shape, const float *dy, const float *x, const float *gamma,
                 const float *rstd, float *dx, float *dgamma, Workspace workspace);

/// y may be x; dx may be dy.
void softmax(const Context &c, const SoftmaxShape &shape, const float *x, float *y);
void softmaxGrad(const Context &c, const SoftmaxShape &shape, const float *y, const float *dy, float *dx);
void logSoftmax(const Context &c, const SoftmaxShape &shape, const float *x, float *y);
void logSoftmaxGrad(const Context &c, const SoftmaxShape &shape, const float *y, const float *dy, float *dx);

} // namespace fsdpc::rt
