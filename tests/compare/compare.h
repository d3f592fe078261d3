// Errors of results against expected values. Tests of all folders compute the largest error here, because std::max
// drops NaN. NaN on either side, a missing element and a different element count are infinite errors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <vector>

namespace fsdpc {

/// 16-bit floats convert to float only.
template <class T>
double asDouble(const T &value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<double>(value);
  else
    return static_cast<double>(static_cast<float>(value));
}

/// |actual - expected|, which is 0 for two infinities of the same sign. Infinite if either or both are NaN, or if only
/// one is infinite.
inline double errorOf(double actual, double expected) {
  if (actual == expected)
    return 0;
  const double error = std::abs(actual - expected);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

/// The larger one of two errors; NaN counts as infinite.
inline double worseOf(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<double>::infinity() : std::max(a, b);
}

/// The largest errorOf all elements; infinite where the counts differ.
template <class Actual, class Expected>
double largestError(const Actual &actual, const Expected &expected) {
  if (actual.size() != expected.size())
    return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    largest = worseOf(largest, errorOf(asDouble(actual[i]), asDouble(expected[i])));
  return largest;
}

/// The scale of a relative error: the largest finite |expected|, at least `least`.
template <class Expected>
double scaleOf(const Expected &expected, double least = 0) {
  double scale = least;
  for (const auto &value : expected)
    if (const double size = std::abs(asDouble(value)); std::isfinite(size))
      scale = std::max(scale, size);
  return scale;
}

/// largestError over scaleOf; where the scale is zero, 0 or infinite.
template <class Actual, class Expected>
double relativeError(const Actual &actual, const Expected &expected, double minScale = 0) {
  const double error = largestError(actual, expected);
  return error == 0 ? 0 : error / scaleOf(expected, minScale);
}

/// The content of a result before a kernel writes it: NaN, which every comparison above treats as an infinite error.
template <class T = float>
std::vector<T> unwritten(std::size_t count) {
  return std::vector<T>(count, T(std::numeric_limits<float>::quiet_NaN()));
}

} // namespace fsdpc
