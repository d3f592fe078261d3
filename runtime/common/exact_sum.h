// The exact sum of squares behind a gradient norm, and the computations that use the norm. All targets share this code.
//
// An accumulator is 22 words: 20 digits base 2^32 of a number in units of 2^-298 (the square of the smallest float),
// the lowest first, then the number of NaN elements and the number of infinite elements. Integer addition is exact, so
// the norm does not depend on the order of addition or on the number of threads or ranks. A digit may exceed 2^32 until
// `carry` is called. Kernels call it before they return an accumulator, so that any number of ranks can add theirs word
// by word.
//
// To accumulate squares fast, all squares of one exponent are added in one 64-bit bin, up to `maxAddends` of them.
// `partsOf` then adds a bin to the digits at its position.
#pragma once

#include "runtime/common/bfloat16.h"
#include "runtime/common/kernel_shapes.h"

#include <cmath>
#include <limits>

namespace fsdpc::rt::exact {

inline constexpr float infinity = std::numeric_limits<float>::infinity(),
                       notANumber = std::numeric_limits<float>::quiet_NaN(),
                       largest = std::numeric_limits<float>::max();

inline constexpr int digits = 20, nanWord = digits, infinityWord = digits + 1, words = digits + 2;
inline constexpr int bins = 256, digitBits = 32;
inline constexpr std::int64_t maxAddends = 1 << 16; ///< squares are below 2^48
inline constexpr std::uint64_t digitMask = 0xffffffffu;
inline constexpr int nonFiniteBin = 255;

FSDPC_HOST_DEVICE inline std::uint32_t bitsOf(float value) {
  std::uint32_t word;
  memcpy(&word, &value, sizeof word);
  return word;
}
FSDPC_HOST_DEVICE inline int binOf(std::uint32_t bits) { return static_cast<int>(bits >> 23 & 0xffu); }
/// The result is meaningless for NaN and infinity, but never 0.
FSDPC_HOST_DEVICE inline std::uint64_t squareOf(std::uint32_t bits) {
  const std::uint32_t mantissa = (bits & 0x7fffffu) | (binOf(bits) != 0 ? 0x800000u : 0u);
  return std::uint64_t{mantissa} * mantissa;
}
FSDPC_HOST_DEVICE inline bool isNaN(std::uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }

/// The contribution of a bin to three digits. Each part is below 2^32.
struct BinParts {
  int firstDigit;
  std::uint64_t parts[3];
};

/// Requires: `bin` is that of a finite exponent.
FSDPC_HOST_DEVICE inline BinParts partsOf(int bin, std::uint64_t sum) {
  const int shift = 2 * (bin > 0 ? bin - 1 : 0), within = shift % digitBits;
  return {shift / digitBits,
          {(sum << within) & digitMask, (sum >> (digitBits - within)) & digitMask,
           within == 0 ? 0 : sum >> (2 * digitBits - within)}};
}

/// Brings every digit below 2^32.
FSDPC_HOST_DEVICE inline void carry(std::uint64_t *sum) {
  for (int i = 0; i + 1 < digits; ++i) {
    sum[i + 1] += sum[i] >> digitBits;
    sum[i] &= digitMask;
  }
}

FSDPC_HOST_DEVICE inline int highestBit(std::uint64_t value) {
  int bit = 0;
  while (value >>= 1)
    ++bit;
  return bit;
}

/// The root of the accumulated sum. Takes the 51 or 52 highest bits of the number, aligned by an even shift; the
/// integer part of their root has 26 bits. One more bit is set if any lower bits remain, so that the result rounds to
/// float as the exact root would. Requires: no digit exceeds 2^32.
FSDPC_HOST_DEVICE inline double rootOf(const std::uint64_t *sum) {
  int top = digits - 1;
  while (top > 0 && sum[top] == 0)
    --top;
  if (sum[top] == 0)
    return 0;
  const int highest = digitBits * top + highestBit(sum[top]);
  const int shift = highest >= 50 ? (highest - 50) / 2 * 2 : -((51 - highest) / 2 * 2);
  std::uint64_t head = 0, rest = 0;
  for (int i = top; i >= 0; --i) {
    const int at = digitBits * i - shift;
    if (at >= 0) {
      head |= sum[i] << at;
      continue;
    }
    head |= at > -digitBits ? sum[i] >> -at : 0;
    rest |= at > -digitBits ? sum[i] & ((std::uint64_t{1} << -at) - 1) : sum[i];
  }
  auto root = static_cast<std::uint64_t>(::sqrt(static_cast<double>(head)));
  while (root * root > head)
    --root;
  while ((root + 1) * (root + 1) <= head)
    ++root;
  const bool isMore = rest != 0 || root * root != head;
  return ::ldexp(static_cast<double>(2 * root + (isMore ? 1 : 0)), shift / 2 - 150);
}

/// The results of clip_norm.
struct Clipped {
  float norm, scale;
  bool applies;
};

FSDPC_HOST_DEVICE inline bool isFinite(float value) { return value - value == 0; }

/// Requires: `carry` was called on `sum`. Like torch's clip_grad_norm_, multiplies max_norm by the reciprocal.
FSDPC_HOST_DEVICE inline Clipped clip(const std::uint64_t *sum, float loss, const ClipNumbers &numbers) {
  const double unscale = numbers.lossScale ? 1 / *numbers.lossScale : 1;
  Clipped result;
  result.norm = sum[nanWord] != 0        ? notANumber
                : sum[infinityWord] != 0 ? infinity
                                         : static_cast<float>(rootOf(sum) * unscale);
  result.applies = isFinite(result.norm) && isFinite(loss);
  result.scale = 0;
  if (!result.applies)
    return result;
  result.scale = static_cast<float>(unscale);
  if (numbers.maxNorm) {
    const float factor = 1 / (result.norm + 1e-6f) * static_cast<float>(*numbers.maxNorm);
    result.scale *= factor < 1 ? factor : 1;
  }
  return result;
}

/// Statistics of the norms of the steps that were applied.
struct NormHistory {
  double mean, variance;
  std::int64_t count;
};

inline constexpr std::int64_t firstJudged = 20, maxRemembered = 100;

/// Returns whether the step with this norm is applied, and records the norms of applied steps. `limit`: standard
/// deviations, 0: none.
FSDPC_HOST_DEVICE inline bool isNoSpike(float norm, double limit, NormHistory &history) {
  if (limit <= 0)
    return true;
  const double distance = static_cast<double>(norm) - history.mean;
  if (history.count >= firstJudged && !(distance <= limit * ::sqrt(history.variance)))
    return false;
  ++history.count;
  const double weight = 1.0 / static_cast<double>(history.count < maxRemembered ? history.count : maxRemembered);
  history.mean += weight * distance;
  history.variance = (1 - weight) * (history.variance + weight * distance * distance);
  return true;
}

/// The dynamic loss scale and the two counters that it depends on.
struct LossScale {
  double scale;
  std::int64_t goodSteps, hysteresis;
  bool isExhausted = false; ///< it should have been halved, but is already at its minimum
};

/// Returns the loss scale of the next step. `applies`: the step had no overflow.
FSDPC_HOST_DEVICE inline LossScale adjusted(LossScale now, const LossScaleRule &rule, bool applies) {
  if (!applies) {
    now.goodSteps = rule.minimum > 0 ? -1 : 0;
    if (now.hysteresis > 1)
      --now.hysteresis;
    else {
      now.isExhausted = now.scale <= rule.minimum;
      now.scale = now.scale / 2 > rule.minimum ? now.scale / 2 : rule.minimum;
    }
  } else if (++now.goodSteps >= rule.window) {
    now.goodSteps = 0;
    now.hysteresis = rule.hysteresis;
    if (2 * now.scale <= static_cast<double>(largest))
      now.scale *= 2;
  }
  return now;
}

} // namespace fsdpc::rt::exact
