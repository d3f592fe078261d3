// IEEE half floats, a format for storage and communication; arithmetic is done in float. Also shared code of both
// 16-bit types.
#pragma once

#include "runtime/common/bfloat16.h"

#include <type_traits>

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

namespace fsdpc::rt {

struct Float16 {
  std::uint16_t bits;

  Float16() = default;
  /// Rounds to nearest, ties to even. Values from 65520 on become infinite; NaN stays NaN (quiet).
  FSDPC_HOST_DEVICE explicit Float16(float value) {
#if defined(__CUDA_ARCH__)
    bits = __half_as_ushort(__float2half_rn(value));
#else
    std::uint32_t word;
    memcpy(&word, &value, sizeof word);
    const std::uint32_t sign = word >> 16 & 0x8000u, magnitude = word & 0x7fffffffu;
    // The addition rounds: the last bit of 2^-1 has the value of the smallest half.
    float shifted;
    memcpy(&shifted, &magnitude, sizeof shifted);
    shifted += 0.5f;
    std::uint32_t subnormal;
    memcpy(&subnormal, &shifted, sizeof subnormal);
    const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    const std::uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const std::uint32_t finite = magnitude < 0x38800000u ? subnormal - 0x3f000000u : normal;
    bits = static_cast<std::uint16_t>(sign | (magnitude >= 0x47800000u ? special : finite));
#endif
  }
  FSDPC_HOST_DEVICE explicit operator float() const {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(bits));
#else
    const std::uint32_t sign = std::uint32_t{bits} << 16 & 0x80000000u,
                        magnitude = std::uint32_t{bits} << 13 & 0x0fffe000u;
    const std::uint32_t exponent = magnitude & 0x0f800000u;
    std::uint32_t word = magnitude + (112u << 23);
    word += exponent == 0x0f800000u ? 112u << 23 : exponent == 0 ? 1u << 23 : 0u;
    float value;
    memcpy(&value, &word, sizeof value);
    value -= exponent == 0 ? 0x1p-14f : 0.0f;
    memcpy(&word, &value, sizeof word);
    word |= sign;
    memcpy(&value, &word, sizeof value);
    return value;
#endif
  }
};

template <class T>
inline constexpr bool isHalf = std::is_same_v<T, Bfloat16> || std::is_same_v<T, Float16>;

/// Converts an element of any float type to T; 16-bit types go through float.
template <class T, class Element>
FSDPC_HOST_DEVICE inline T elementAs(Element element) {
  if constexpr (isHalf<Element>)
    return static_cast<T>(static_cast<float>(element));
  else
    return static_cast<T>(element);
}

/// to = Half(value), which compilers vectorize, unlike the assignment of a struct.
template <class Half>
inline void storeRounded(Half &to, float value) {
  to.bits = Half(value).bits;
}

/// Returns `value` rounded to float16.
FSDPC_HOST_DEVICE inline float roundedToFloat16(float value) { return static_cast<float>(Float16(value)); }

/// Where an optimizer also stores the new parameters, rounded. At most one of the two is set; null: no rounded copy.
struct LowPrecision {
  Bfloat16 *bf16 = nullptr;
  Float16 *f16 = nullptr;

  LowPrecision() = default;
  FSDPC_HOST_DEVICE LowPrecision(std::nullptr_t) {}
  FSDPC_HOST_DEVICE LowPrecision(Bfloat16 *to) : bf16(to) {}
  FSDPC_HOST_DEVICE LowPrecision(Float16 *to) : f16(to) {}
};

} // namespace fsdpc::rt
