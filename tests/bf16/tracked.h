// A number and the maximum error of a program that computes it in f32: running error analysis (Wilkinson; Higham,
// Accuracy and Stability of Numerical Algorithms, 3.3). Every operation is executed in f64 and adds the rounding error
// of f32.
//
// The error of a sum of n terms is at most n x 2^-24 x the sum of their absolute values, in any order of summation
// (Higham 4.2), plus the errors of the terms.
#pragma once

#include "ir/eval/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fsdpc::rounding {

inline constexpr double unitRoundoff = 0x1p-24;
/// Of exp, log, tanh, erf and the like: both targets' libraries promise a few units in the last place.
inline constexpr double functionRoundings = 8;

struct Tracked {
  double value = 0, error = 0;

  Tracked() = default;
  /// A number that the program represents exactly.
  Tracked(double exact) : value(exact) {}
  Tracked(double value, double error) : value(value), error(error) {}

  /// An f32 operation with one rounding, or as many as given. For exact operands the rounding error is known.
  static Tracked rounded(double value, double error, double roundings = 1) {
    if (error == 0 && roundings == 1)
      return {value, std::fabs(static_cast<double>(static_cast<float>(value)) - value)};
    return {value, error + roundings * unitRoundoff * std::fabs(value)};
  }
};

/// A number of the host that the program rounds to f32.
inline Tracked asFloat(double value) { return Tracked::rounded(value, 0); }

inline Tracked operator-(Tracked a) { return {-a.value, a.error}; }
inline Tracked operator+(Tracked a, Tracked b) { return Tracked::rounded(a.value + b.value, a.error + b.error); }
inline Tracked operator-(Tracked a, Tracked b) { return a + -b; }
inline Tracked operator*(Tracked a, Tracked b) {
  return Tracked::rounded(a.value * b.value,
                          a.error * std::fabs(b.value) + b.error * std::fabs(a.value) + a.error * b.error);
}

/// The possible values of `function` within the argument's error. It must be monotonic there.
template <class Function>
Tracked mapped(Tracked x, double roundings, Function function) {
  const double value = function(x.value);
  const double below = std::fabs(function(x.value - x.error) - value);
  const double above = std::fabs(function(x.value + x.error) - value);
  return Tracked::rounded(value, std::max(std::isnan(below) ? 0 : below, above), roundings);
}

inline Tracked operator/(Tracked a, Tracked b) {
  const double least = std::max(std::fabs(b.value) - b.error, std::numeric_limits<double>::min());
  const double value = a.value / b.value;
  return Tracked::rounded(value, (a.error + std::fabs(value) * b.error) / least);
}
inline Tracked exponential(Tracked x) {
  return mapped(x, functionRoundings, [](double y) { return std::exp(y); });
}
inline Tracked logarithm(Tracked x) {
  return mapped(x, functionRoundings, [](double y) { return std::log(y); });
}
inline Tracked hyperbolicTangent(Tracked x) {
  return mapped(x, functionRoundings, [](double y) { return std::tanh(y); });
}
inline Tracked squareRoot(Tracked x) {
  return mapped(x, 1, [](double y) { return std::sqrt(y); });
}

/// A value that the program stores in this type and continues with. It may be the neighbour, if rounding may go there.
inline Tracked stored(Tracked x, DType dtype) {
  if (!isFloat(dtype) || byteSize(dtype) != 2)
    return x;
  const double value = roundedTo(dtype, x.value);
  const double below = roundedTo(dtype, x.value - x.error), above = roundedTo(dtype, x.value + x.error);
  return {value, std::max(value - below, above - value)};
}

/// The sum of the added terms.
class Sum {
public:
  void add(Tracked term) {
    value += term.value;
    absolute += std::fabs(term.value);
    errors += term.error;
    ++terms;
  }
  Tracked total() const { return {value, errors + terms * unitRoundoff * absolute}; }

private:
  double value = 0, absolute = 0, errors = 0;
  double terms = 0;
};

} // namespace fsdpc::rounding
