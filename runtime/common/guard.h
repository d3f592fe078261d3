// Guards of an update: the exact norm of all gradients, clipping, whether the step is applied, and the next loss scale.
// Each target implements them (kernels/guard) with the arithmetic of runtime/common/exact_sum.h, which also defines
// accumulators.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

#include <initializer_list>

namespace fsdpc::rt {

/// sum: an accumulator, the exact sum of the squares of all elements.
void squareSum(const Context &c, std::initializer_list<FloatRange> tensors, std::int64_t *sum);

/// norm: the norm over all accumulators, divided by the loss scale. scale: the factor to multiply gradients with.
/// applies: whether norm and loss are finite. If not, scale is 0.
void clipNorm(const Context &c, const ClipNumbers &numbers, std::initializer_list<const std::int64_t *> sums,
              const float *loss, float *norm, float *scale, bool *applies);

/// stillApplies: `applies`, and the norm is not a spike: at most `limit` standard deviations (0: no limit) above the
/// mean of the previous norms. Results may alias their operands.
void spikeGuard(const Context &c, const float *norm, const bool *applies, const double *limit, const double *mean,
                const double *variance, const std::int64_t *count, bool *stillApplies, double *nextMean,
                double *nextVariance, std::int64_t *nextCount);

/// Results may alias their operands. isExhausted: the scale should have been halved, but is already at its minimum.
void adjustLossScale(const Context &c, const LossScaleRule &rule, const double *scale, const std::int64_t *goodSteps,
                     const std::int64_t *hysteresis, const bool *applies, double *nextScale,
                     std::int64_t *nextGoodSteps, std::int64_t *nextHysteresis, bool *isExhausted);

} // namespace fsdpc::rt
