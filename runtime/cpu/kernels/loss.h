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

/// lse [rows] is an input of the derivative.
void crossEntropy(const Context &c, const LossShape &shape, const float *logits, const std::int64_t *labels,
                  float *terms, float *lse);
/// dlogits may alias logits.
void crossEntropyGrad(const Context &c, const LossShape &shape, const float *dterms, const float *logits,
                      const std::int64_t *labels, const float *lse, float *dlogits);
void nll(const Context &c, const LossShape &shape, const float *logProbabilities, const std::int64_t *labels,
         float *terms);
void nllGrad(const Context &c, const LossShape &shape, const float *dterms, const std::int64_t *labels,
             float *dLogProbabilities);

} // namespace fsdpc::rt
