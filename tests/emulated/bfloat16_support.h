// Bfloat16 tensors for tests, and their tolerances against f64.
#pragma once

#include "tests/runtime/kernels_references.h"

namespace fsdpc::rt {

inline std::vector<Bfloat16> roundedToBfloat16(const std::vector<float> &values) {
  std::vector<Bfloat16> rounded;
  for (const float value : values)
    rounded.push_back(Bfloat16(value));
  return rounded;
}

inline std::vector<float> asFloats(const std::vector<Bfloat16> &values) {
  std::vector<float> floats;
  for (const Bfloat16 value : values)
    floats.push_back(static_cast<float>(value));
  return floats;
}

/// Values that Bfloat16 represents exactly, so that a reference starts from what the kernel reads.
inline std::vector<float> bfloat16Numbers(std::int64_t count, std::uint64_t seed) {
  return asFloats(roundedToBfloat16(numbers(count, seed)));
}

/// How far the worst element exceeds one rounding of the exact value, relative to the largest value (at least 1): the
/// error that float arithmetic before it may add. A second rounding would show as some 1e-3.
inline double excessOverOneRounding(const std::vector<Bfloat16> &actual, const std::vector<double> &expected) {
  double largest = actual.size() == expected.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < actual.size() && i < expected.size(); ++i) {
    const bool rounds = expected[i] != 0 && std::isfinite(expected[i]);
    const double halfUnit = rounds ? std::ldexp(1.0, std::ilogb(expected[i]) - 8) : 0;
    largest = worseOf(largest, errorOf(asDouble(actual[i]), expected[i]) - halfUnit);
  }
  return largest / scaleOf(expected, 1);
}

} // namespace fsdpc::rt
