// Cross entropy of logits and negative log-likelihood of log-probabilities, per row; the class is the last axis.
//
//   term = (1 - s) * (lse - x[label]) + s * (lse - mean(x)),   s = label smoothing;   0 where label == ignoreIndex
//   d term / d x[j] = exp(x[j] - lse) - (1 - s) * [j == label] - s / classes
// For nll, lse = 0 and the derivative has no exponential. A label outside [0, classes) that is not ignored gives NaN.
// Sums over classes are those of long_sum.h.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// T: float or Bfloat16, in which derivatives are rounded. lse [rows] is an input of the derivative.
template <class T>
void crossEntropy(const Context &c, const LossShape &shape, const T *logits, const std::int64_t *labels, float *terms,
                  float *lse);
/// dlogits may alias logits.
template <class T>
void crossEntropyGrad(const Context &c, const LossShape &shape, const float *dterms, const T *logits,
                      const std::int64_t *labels, const float *lse, T *dlogits);
#define FSDPC_CROSS_ENTROPY(prefix, T)                                                                                 \
  prefix template void crossEntropy(const Context &, const LossShape &, const T *, const std::int64_t *, float *,      \
                                    float *);                                                                          \
  prefix template void crossEntropyGrad(const Context &, const LossShape &, const float *, const T *,                  \
                                        const std::int64_t *, const float *, T *);
FSDPC_CROSS_ENTROPY(extern, float)
FSDPC_CROSS_ENTROPY(extern, Bfloat16)

void nll(const Context &c, const LossShape &shape, const float *logProbabilities, const std::int64_t *labels,
         float *terms);
void nllGrad(const Context &c, const LossShape &shape, const float *dterms, const std::int64_t *labels,
             float *dLogProbabilities);

} // namespace fsdpc::rt
