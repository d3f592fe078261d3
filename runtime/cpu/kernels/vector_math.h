// Scalar functions that generated loops call, written so that the compiler vectorises them.
//
// glibc's libmvec has vector forms of the functions declared here (a few ulp). Declared this way they are used without
// -ffast-math, so NaN and infinity keep their meaning and sums keep their order. Needs -fopenmp-simd (or -fopenmp) and
// -fno-math-errno; without them, or elsewhere, the scalar functions are called.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__FAST_MATH__)
#if __GLIBC_PREREQ(2, 35)
extern "C" {
#pragma omp declare simd notinbranch
float expf(float) noexcept;
#pragma omp declare simd notinbranch
float logf(float) noexcept;
#pragma omp declare simd notinbranch
float log1pf(float) noexcept;
#pragma omp declare simd notinbranch
float tanhf(float) noexcept;
#pragma omp declare simd notinbranch
float erff(float) noexcept;
#pragma omp declare simd notinbranch
float sinf(float) noexcept;
#pragma omp declare simd notinbranch
float cosf(float) noexcept;
#pragma omp declare simd notinbranch
float atanf(float) noexcept;
#pragma omp declare simd notinbranch
float powf(float, float) noexcept;
#pragma omp declare simd notinbranch
double exp(double) noexcept;
#pragma omp declare simd notinbranch
double log(double) noexcept;
#pragma omp declare simd notinbranch
double tanh(double) noexcept;
#pragma omp declare simd notinbranch
double erf(double) noexcept;
}
#endif
#endif

namespace fsdpc::rt::scalar {

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float notANumber = std::numeric_limits<float>::quiet_NaN();

inline float exp(float x) { return ::expf(x); }
inline double exp(double x) { return ::exp(x); }
inline float log(float x) { return ::logf(x); }
inline double log(double x) { return ::log(x); }
inline float log1p(float x) { return ::log1pf(x); }
inline double log1p(double x) { return ::log1p(x); }
inline float tanh(float x) { return ::tanhf(x); }
inline double tanh(double x) { return ::tanh(x); }
inline float erf(float x) { return ::erff(x); }
inline double erf(double x) { return ::erf(x); }
inline float sin(float x) { return ::sinf(x); }
inline double sin(double x) { return ::sin(x); }
inline float cos(float x) { return ::cosf(x); }
inline double cos(double x) { return ::cos(x); }
inline float atan(float x) { return ::atanf(x); }
inline double atan(double x) { return ::atan(x); }
inline float pow(float x, float y) { return ::powf(x, y); }
inline double pow(double x, double y) { return ::pow(x, y); }
inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline double sqrt(double x) { return __builtin_sqrt(x); }
inline float floor(float x) { return __builtin_floorf(x); }
inline double floor(double x) { return __builtin_floor(x); }
inline float ceil(float x) { return __builtin_ceilf(x); }
inline double ceil(double x) { return __builtin_ceil(x); }
/// Rounds halves to even, like ONNX Round.
inline float round(float x) { return __builtin_rintf(x); }
inline double round(double x) { return __builtin_rint(x); }

template <class T>
T abs(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return std::is_same_v<T, float> ? static_cast<T>(__builtin_fabsf(static_cast<float>(x)))
                                    : static_cast<T>(__builtin_fabs(static_cast<double>(x)));
  else if constexpr (std::is_unsigned_v<T>)
    return x;
  else
    return x < T(0) ? static_cast<T>(-x) : x;
}

/// -1, 0 or 1; NaN stays NaN.
template <class T>
T sign(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return x != x ? x : static_cast<T>((x > T(0)) - (x < T(0)));
  else
    return static_cast<T>((x > T(0)) - (x < T(0)));
}

/// NaN if either is NaN (ONNX Max and Min, torch.maximum). A comparison with NaN is false, so the NaN must be on the
/// chosen side.
template <class T>
T max(T x, T y) {
  if constexpr (std::is_floating_point_v<T>)
    return (x > y) | (x != x) ? x : y;
  else
    return x > y ? x : y;
}
template <class T>
T min(T x, T y) {
  if constexpr (std::is_floating_point_v<T>)
    return (x < y) | (x != x) ? x : y;
  else
    return x < y ? x : y;
}
/// relu(NaN) is NaN.
template <class T>
T relu(T x) {
  return x < T(0) ? T(0) : x;
}

template <class T>
T rsqrt(T x) {
  return T(1) / sqrt(x);
}
template <class T>
T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}

/// Integer power by squaring. A negative exponent yields 0 except for bases 1 and -1, as with truncation.
template <class T>
T integerPow(T base, T exponent) {
  if (exponent < T(0))
    return base == T(1) ? T(1) : base == T(-1) ? (exponent % 2 == 0 ? T(1) : T(-1)) : T(0);
  T result = 1;
  for (; exponent > T(0); exponent = static_cast<T>(exponent >> 1), base = static_cast<T>(base * base))
    if (exponent & 1)
      result = static_cast<T>(result * base);
  return result;
}

/// The remainder has the sign of x for floats (ONNX Mod with fmod=1) and of y for integers (fmod=0). Integers yield 0
/// for a zero divisor.
template <class T>
T mod(T x, T y) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmod(x, y);
  } else {
    if (y == T(0) || (std::is_signed_v<T> && y == T(-1)))
      return T(0);
    const T remainder = static_cast<T>(x % y);
    return remainder != T(0) && (remainder < T(0)) != (y < T(0)) ? static_cast<T>(remainder + y) : remainder;
  }
}
/// Truncates. Division of integers by zero yields 0.
template <class T>
T div(T x, T y) {
  if constexpr (std::is_floating_point_v<T>)
    return x / y;
  else if (y == T(0))
    return T(0);
  else if (std::is_signed_v<T> && y == T(-1)) // the quotient of the lowest value does not fit
    return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(x));
  else
    return static_cast<T>(x / y);
}

/// x * Phi(x)
template <class T>
T gelu(T x) {
  return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752)));
}
/// dy * (Phi(x) + x * phi(x))
template <class T>
T geluGrad(T dy, T x) {
  const T cdf = T(0.5) * (T(1) + erf(x * T(0.70710678118654752)));
  const T density = T(0.39894228040143268) * exp(T(-0.5) * x * x);
  return dy * (cdf + x * density);
}
template <class T>
T geluTanh(T x) {
  const T inner = T(0.79788456080286536) * (x + T(0.044715) * x * x * x);
  return T(0.5) * x * (T(1) + tanh(inner));
}
template <class T>
T geluTanhGrad(T dy, T x) {
  const T inner = T(0.79788456080286536) * (x + T(0.044715) * x * x * x);
  const T t = tanh(inner);
  const T slope = T(0.79788456080286536) * (T(1) + T(0.134145) * x * x);
  return dy * (T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * slope);
}
/// x * sigmoid(x)
template <class T>
T silu(T x) {
  return x * sigmoid(x);
}
/// dy * (s + x * s * (1 - s)) with s = sigmoid(x); in terms of exp(-|x|), so that 1 - s keeps its precision.
template <class T>
T siluGrad(T dy, T x) {
  const T e = exp(x < T(0) ? x : -x), r = T(1) / (T(1) + e);
  const T s = x < T(0) ? e * r : r;
  return dy * (s + x * (e * r * r));
}

/// To bool: whether x differs from zero. Float to integer truncates (saturates beyond 64 bits, NaN yields 0) and wraps
/// to the width.
template <class To, class From>
To cast(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    constexpr From limit = static_cast<From>(0x1p63);
    const std::int64_t whole = x >= limit    ? std::numeric_limits<std::int64_t>::max()
                               : x >= -limit ? static_cast<std::int64_t>(x)
                               : x == x      ? std::numeric_limits<std::int64_t>::min()
                                             : 0;
    return static_cast<To>(whole);
  } else {
    return static_cast<To>(x);
  }
}

} // namespace fsdpc::rt::scalar
