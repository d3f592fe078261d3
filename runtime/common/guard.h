// What guards an update: the exact norm of all gradients, what clips it, whether the step counts, and the next loss
// scale. Each target implements it (runtime/cpu/kernels/guard.cpp, runtime/cuda/kernels/guard.cu) with the arithmetic
// of runtime/common/exact_sum.h, which says what an accumulator is.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

#include <initializer_list>

namespace fsdpc::rt {

/// sum: the exact sum of the squares of all elements, an accumulator.
void squareSum(const Context &c, std::initializer_list<FloatRun> tensors, std::int64_t *sum);

/// norm: that of everything in the accumulators together, divided by the loss scale. scale: what gradients are to be
/// multiplied with. applies: are norm and loss finite? If not, scale is 0.
void clipNorm(const Context &c, const ClipNumbers &numbers, std::initializer_list<const std::int64_t *> sums,
              const float *loss, float *norm, float *scale, bool *applies);

/// stillApplies: is it also no spike, more than `limit` standard deviations (0: no limit) above the mean of the norms
/// before? Results may be their operands.
void spikeGuard(const Context &c, const float *norm, const bool *applies, const double *limit, const double *mean,
                const double *variance, const std::int64_t *count, bool *stillApplies, double *nextMean,
                double *nextVariance, std::int64_t *nextCount);

/// Results may be their operands. isExhausted: the scale should have been halved, but is as low as it gets.
void adjustLossScale(const Context &c, const LossScaleRule &rule, const double *scale, const std::int64_t *goodSteps,
                     const std::int64_t *hysteresis, const bool *applies, double *nextScale,
                     std::int64_t *nextGoodSteps, std::int64_t *nextHysteresis, bool *isExhausted);

} // namespace fsdpc::rt
