// What guards an update: the exact sum of squares, and what follows from it.
//
// An accumulator is i64[squareSumWords]: digits of a number in units of 2^-298, the square of the smallest f32, base
// 2^32 and the lowest first, then how many elements were NaN and how many infinite. It holds the sum of any 2^40
// squares of f32 exactly, so in whatever order and over however many ranks it is summed, the result is the same number.
// square_sum leaves every digit below 2^32; sums of accumulators, word by word, may leave more, as long as they fit.
#pragma once

#include <cstdint>

namespace fsdpc {

inline constexpr int64_t squareSumDigits = 20, squareSumNaNs = squareSumDigits, squareSumInfinities = squareSumNaNs + 1,
                         squareSumWords = squareSumInfinities + 1;
/// A digit stands for 2^(32 * its index + squareSumExponent).
inline constexpr int squareSumExponent = -298;

/// spike_guard: norms that it wants to have seen before it judges one, and those it goes by at most.
inline constexpr int64_t spikeGuardFirst = 20, spikeGuardMemory = 100;

/// adjust_loss_scale: good_steps at the start and behind a step that did not apply. DeepSpeed, whose minimum is above
/// 0, does not count the step behind such a one, nor the first of all (stable_interval in its
/// DynamicLossScaler::update_scale); torch, which has no minimum, does.
constexpr int64_t goodStepsAtFirst(double minimum) { return minimum > 0 ? -1 : 0; }

} // namespace fsdpc
