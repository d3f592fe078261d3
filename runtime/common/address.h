// How emitted programs write addresses. `f32(c, P + 0x1a40)` is the float at that byte of the private arena. W is the
// window arena, H the host arena.
#pragma once

#include "runtime/common/float16.h"
#include "runtime/common/program.h"

#include <cstring>
#include <type_traits>

namespace fsdpc::rt {

/// The base of a memory space. Adding an offset in bytes yields a Place.
struct AddressSpace {
  Space space;
  friend constexpr Place operator+(AddressSpace base, std::int64_t offsetBytes) { return {base.space, offsetBytes}; }
};

inline constexpr AddressSpace P{Space::privateSpace};
inline constexpr AddressSpace W{Space::window};
inline constexpr AddressSpace H{Space::host};

inline float *f32(const Context &c, Place place) { return c.at<float>(place); }
inline double *f64(const Context &c, Place place) { return c.at<double>(place); }
inline std::int64_t *i64(const Context &c, Place place) { return c.at<std::int64_t>(place); }
inline std::int32_t *i32(const Context &c, Place place) { return c.at<std::int32_t>(place); }
inline Bfloat16 *bf16(const Context &c, Place place) { return c.at<Bfloat16>(place); }
inline Float16 *f16(const Context &c, Place place) { return c.at<Float16>(place); }
inline std::uint8_t *u8(const Context &c, Place place) { return c.at<std::uint8_t>(place); }
/// Booleans are one byte, 0 or 1.
inline bool *boolean(const Context &c, Place place) { return c.at<bool>(place); }

/// Elements as unsigned integers of their size, for kernels that only move them.
template <class T>
auto bits(T *data) {
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
  using Bits = std::conditional_t<sizeof(T) == 1, std::uint8_t,
                                  std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                                     std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;
  return reinterpret_cast<std::conditional_t<std::is_const_v<T>, const Bits, Bits> *>(data);
}

/// Scratch memory of one node: `bytes` bytes that the plan reserved for it.
struct Workspace {
  std::byte *data = nullptr;
  std::int64_t bytes = 0;
};

inline Workspace scratch(const Context &c, Place place, std::int64_t bytes) { return {c.at<std::byte>(place), bytes}; }

} // namespace fsdpc::rt
