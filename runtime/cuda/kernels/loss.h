// Cross entropy of logits and negative log-likelihood of log-probabilities, per row; the class is the last axis.
//
//   term = (1 - s) * (lse - x[label]) + s * (lse - mean(x)),   s = label smoothing;   0 where label == ignoreIndex
//   d term / d x[j] = exp(x[j] - lse) - (1 - s) * [j == label] - s / classes
// For nll, lse = 0 and the derivative has no exponential. A label outside [0, classes) that is not ignored gives NaN.
//
// T: float or Bfloat16; terms, their derivatives and lse are float. No kernel stores probabilities.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// lse [rows] is kept for the derivative.
template <class T>
void crossEntropy(const Context &c, const LossShape &shape, const T *logits, const std::int64_t *labels, float *terms,
                  float *lse);
/// dlogits may be logits.
template <class T>
void crossEntropyGrad(const Context &c, const LossShape &shape, const float *dterms, const T *logits,
                      const std::int64_t *labels, const float *lse, T *dlogits);
template <class T>
void nll(const Context &c, const LossShape &shape, const T *logProbabilities, const std::int64_t *labels, float *terms);
template <class T>
void nllGrad(const Context &c, const LossShape &shape, const float *dterms, const std::int64_t *labels,
             T *dLogProbabilities);

} // namespace fsdpc::rt
