// bfloat16: the upper half of a float. A format for storage and communication; arithmetic is done in float.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define FSDPC_HOST_DEVICE __host__ __device__
#else
#define FSDPC_HOST_DEVICE
#endif

namespace fsdpc::rt {

struct Bfloat16 {
  std::uint16_t bits;

  Bfloat16() = default;
  /// Rounds to nearest, ties to even; NaN stays NaN (quiet).
  FSDPC_HOST_DEVICE explicit Bfloat16(float value) {
#if defined(__CUDA_ARCH__)
    // The conversion of a pair runs at four times the rate of a single one.
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(value));
    bits = static_cast<std::uint16_t>(pair);
#else
    std::uint32_t word;
    memcpy(&word, &value, sizeof word);
    const bool isNaN = (word & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<std::uint16_t>((isNaN ? word | 0x00400000u : word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
#endif
  }
  FSDPC_HOST_DEVICE explicit operator float() const {
    const std::uint32_t word = std::uint32_t{bits} << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
  }
};

/// Returns `value` rounded to bfloat16.
FSDPC_HOST_DEVICE inline float roundedToBfloat16(float value) { return static_cast<float>(Bfloat16(value)); }

} // namespace fsdpc::rt
