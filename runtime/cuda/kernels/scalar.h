// Scalar functions that generated kernels call. Names and meaning are those of the cpu target
// (runtime/cpu/kernels/vector_math.h), so that a fused expression has one text for both targets.
//
// float and double use the CUDA math library at its documented precision (a few ulp), never the fast intrinsics.
// Division and square root are correctly rounded, as by nvcc's defaults. 16-bit floats are only converted: arithmetic
// on them is in float.
#pragma once

#include "runtime/common/float16.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace fsdpc::rt::scalar {

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float lowest = std::numeric_limits<float>::lowest();
inline constexpr float notANumber = std::numeric_limits<float>::quiet_NaN();

FSDPC_HOST_DEVICE inline float exp(float x) { return ::expf(x); }
FSDPC_HOST_DEVICE inline double exp(double x) { return ::exp(x); }
FSDPC_HOST_DEVICE inline float log(float x) { return ::logf(x); }
FSDPC_HOST_DEVICE inline double log(double x) { return ::log(x); }
FSDPC_HOST_DEVICE inline float log1p(float x) { return ::log1pf(x); }
FSDPC_HOST_DEVICE inline double log1p(double x) { return ::log1p(x); }
FSDPC_HOST_DEVICE inline float tanh(float x) { return ::tanhf(x); }
FSDPC_HOST_DEVICE inline double tanh(double x) { return ::tanh(x); }
FSDPC_HOST_DEVICE inline float erf(float x) { return ::erff(x); }
FSDPC_HOST_DEVICE inline double erf(double x) { return ::erf(x); }
FSDPC_HOST_DEVICE inline float sin(float x) { return ::sinf(x); }
FSDPC_HOST_DEVICE inline double sin(double x) { return ::sin(x); }
FSDPC_HOST_DEVICE inline float cos(float x) { return ::cosf(x); }
FSDPC_HOST_DEVICE inline double cos(double x) { return ::cos(x); }
FSDPC_HOST_DEVICE inline float atan(float x) { return ::atanf(x); }
FSDPC_HOST_DEVICE inline double atan(double x) { return ::atan(x); }
FSDPC_HOST_DEVICE inline float pow(float x, float y) { return ::powf(x, y); }
FSDPC_HOST_DEVICE inline double pow(double x, double y) { return ::pow(x, y); }
FSDPC_HOST_DEVICE inline float sqrt(float x) { return ::sqrtf(x); }
FSDPC_HOST_DEVICE inline double sqrt(double x) { return ::sqrt(x); }
FSDPC_HOST_DEVICE inline float floor(float x) { return ::floorf(x); }
FSDPC_HOST_DEVICE inline double floor(double x) { return ::floor(x); }
FSDPC_HOST_DEVICE inline float ceil(float x) { return ::ceilf(x); }
FSDPC_HOST_DEVICE inline double ceil(double x) { return ::ceil(x); }
/// Ties go to even, as ONNX Round specifies.
FSDPC_HOST_DEVICE inline float round(float x) { return ::rintf(x); }
FSDPC_HOST_DEVICE inline double round(double x) { return ::rint(x); }

template <class T>
FSDPC_HOST_DEVICE T abs(T x) {
  if constexpr (std::is_same_v<T, float>)
    return ::fabsf(x);
  else if constexpr (std::is_same_v<T, double>)
    return ::fabs(x);
  else if constexpr (std::is_unsigned_v<T>)
    return x;
  else
    return x < T(0) ? static_cast<T>(-x) : x;
}

/// -1, 0 or 1; NaN stays NaN.
template <class T>
FSDPC_HOST_DEVICE T sign(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return x != x ? x : static_cast<T>((x > T(0)) - (x < T(0)));
  else if constexpr (std::is_unsigned_v<T>)
    return static_cast<T>(x != T(0));
  else
    return static_cast<T>((x > T(0)) - (x < T(0)));
}

/// NaN if either is, as in ONNX Max and Min; fmaxf and fminf would drop it.
template <class T>
FSDPC_HOST_DEVICE T max(T x, T y) {
  if constexpr (std::is_floating_point_v<T>)
    return x > y || x != x ? x : y;
  else
    return x > y ? x : y;
}
template <class T>
FSDPC_HOST_DEVICE T min(T x, T y) {
  if constexpr (std::is_floating_point_v<T>)
    return x < y || x != x ? x : y;
  else
    return x < y ? x : y;
}
/// relu(NaN) is NaN.
template <class T>
FSDPC_HOST_DEVICE T relu(T x) {
  if constexpr (std::is_unsigned_v<T>)
    return x;
  else
    return x < T(0) ? T(0) : x;
}

template <class T>
FSDPC_HOST_DEVICE T rsqrt(T x) {
  return T(1) / sqrt(x);
}
/// 1 / x for x >= 1. On a device within one unit of the last place (PTX ISA, rcp.approx.ftz; results below 2^-126 are
/// 0), where exp is within two. The exact quotient takes five times as long.
FSDPC_HOST_DEVICE inline float reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return 1 / x;
#endif
}
FSDPC_HOST_DEVICE inline double reciprocal(double x) { return 1 / x; }

template <class T>
FSDPC_HOST_DEVICE T sigmoid(T x) {
  return reciprocal(T(1) + exp(-x));
}

/// Integer power by squaring. A negative exponent yields 0 except for bases 1 and -1, as truncation does.
template <class T>
FSDPC_HOST_DEVICE T integerPow(T base, T exponent) {
  if constexpr (std::is_signed_v<T>)
    if (exponent < T(0))
      return base == T(1) ? T(1) : base == T(-1) ? (exponent % 2 == 0 ? T(1) : T(-1)) : T(0);
  // Unsigned words, 32 bits or more: overflow wraps.
  using Word = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  Word result = 1, power = static_cast<Word>(base);
  for (; exponent != T(0); exponent = static_cast<T>(exponent >> 1), power *= power)
    if (exponent & 1)
      result *= power;
  return static_cast<T>(result);
}

/// The remainder has the sign of x for floats (ONNX Mod with fmod=1), of y for integers (fmod=0). Integer remainder by
/// zero is 0.
template <class T>
FSDPC_HOST_DEVICE T mod(T x, T y) {
  if constexpr (std::is_same_v<T, float>) {
    return ::fmodf(x, y);
  } else if constexpr (std::is_same_v<T, double>) {
    return ::fmod(x, y);
  } else if constexpr (std::is_unsigned_v<T>) {
    return y == T(0) ? T(0) : static_cast<T>(x % y);
  } else {
    if (y == T(0) || y == T(-1))
      return T(0);
    const T remainder = static_cast<T>(x % y);
    return remainder != T(0) && (remainder < T(0)) != (y < T(0)) ? static_cast<T>(remainder + y) : remainder;
  }
}
/// Truncating division. Integer division by zero is 0. The lowest integer divided by -1 wraps.
template <class T>
FSDPC_HOST_DEVICE T div(T x, T y) {
  if constexpr (std::is_floating_point_v<T>) {
    return x / y;
  } else {
    if (y == T(0))
      return T(0);
    if constexpr (std::is_signed_v<T>)
      if (y == T(-1))
        return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(x));
    return static_cast<T>(x / y);
  }
}

/// x * Phi(x)
template <class T>
FSDPC_HOST_DEVICE T gelu(T x) {
  return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752)));
}
/// dy * (Phi(x) + x * phi(x))
template <class T>
FSDPC_HOST_DEVICE T geluGrad(T dy, T x) {
  const T cdf = T(0.5) * (T(1) + erf(x * T(0.70710678118654752)));
  const T density = T(0.39894228040143268) * exp(T(-0.5) * x * x);
  return dy * (cdf + x * density);
}
/// 0.5 * x * (1 + tanh(u)) with u = sqrt(2/pi) * (x + 0.044715 * x^3). (1 + tanh(u)) / 2 is sigmoid(2u), which has no
/// cancellation at negative u and takes half the instructions.
template <class T>
FSDPC_HOST_DEVICE T geluTanh(T x) {
  return x * sigmoid(T(1.5957691216057308) * (x + T(0.044715) * x * x * x));
}
/// dy * (s + x * s * (1 - s) * 2u') with s = sigmoid(2u); in terms of exp(-|2u|), as siluGrad.
template <class T>
FSDPC_HOST_DEVICE T geluTanhGrad(T dy, T x) {
  const T twice = T(1.5957691216057308) * (x + T(0.044715) * x * x * x);
  const T e = exp(twice < T(0) ? twice : -twice), r = reciprocal(T(1) + e);
  const T s = twice < T(0) ? e * r : r;
  const T slope = T(1.5957691216057308) * (T(1) + T(0.134145) * x * x);
  return dy * (s + x * (e * r * r) * slope);
}
/// x * sigmoid(x)
template <class T>
FSDPC_HOST_DEVICE T silu(T x) {
  return x * sigmoid(x);
}
/// dy * (s + x * s * (1 - s)) with s = sigmoid(x); in terms of exp(-|x|), so that 1 - s keeps its digits.
template <class T>
FSDPC_HOST_DEVICE T siluGrad(T dy, T x) {
  const T e = exp(x < T(0) ? x : -x), r = reciprocal(T(1) + e);
  const T s = x < T(0) ? e * r : r;
  return dy * (s + x * (e * r * r));
}

/// To bool: differs from zero. Float to integer truncates (beyond 64 bits saturates, NaN yields 0) and wraps to the
/// width. 16-bit floats are converted through float.
template <class To, class From>
FSDPC_HOST_DEVICE To cast(From x) {
  if constexpr (isHalf<From> && std::is_same_v<From, To>) {
    return x;
  } else if constexpr (isHalf<From>) {
    return cast<To>(static_cast<float>(x));
  } else if constexpr (isHalf<To>) {
    return To(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    constexpr From limit = static_cast<From>(0x1p63);
    const std::int64_t whole = x >= limit    ? INT64_MAX
                               : x >= -limit ? static_cast<std::int64_t>(x)
                               : x == x      ? INT64_MIN
                                             : 0;
    return static_cast<To>(whole);
  } else {
    return static_cast<To>(x);
  }
}

} // namespace fsdpc::rt::scalar
