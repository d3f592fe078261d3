// Guards of an update: the exact sum of squares, and values that are computed from it.
//
// An accumulator is i64[squareSumWords]. It holds the digits of a number in units of 2^-298, the square of the smallest
// f32, in base 2^32 with the lowest first, then the count of NaN elements and the count of infinite ones. It represents
// the sum of any 2^40 squares of f32 exactly, so the result does not depend on the order of summation or on the number
// of ranks. square_sum leaves every digit below 2^32. Word-by-word sums of accumulators may exceed that, as long as
// they fit.
#pragma once

#include <cstdint>

namespace fsdpc {

inline constexpr int64_t squareSumDigits = 20, squareSumNaNs = squareSumDigits, squareSumInfinities = squareSumNaNs + 1,
                         squareSumWords = squareSumInfinities + 1;
/// The weight of a digit is 2^(32 * its index + squareSumExponent).
inline constexpr int squareSumExponent = -298;

/// spike_guard: the number of norms that it needs before it judges one, and the maximum number that it averages over.
inline constexpr int64_t spikeGuardFirst = 20, spikeGuardMemory = 100;

/// adjust_loss_scale: good_steps at the start and after a step that did not apply. DeepSpeed, whose minimum is above 0,
/// does not count the first step after one that did not apply, nor the very first step (stable_interval in its
/// DynamicLossScaler::update_scale). torch, which has no minimum, counts them.
constexpr int64_t goodStepsAtFirst(double minimum) { return minimum > 0 ? -1 : 0; }

} // namespace fsdpc
