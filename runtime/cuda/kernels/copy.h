// Moving elements: transposes, slices, pads, concatenations and broadcasts are all one strided copy.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

#include <type_traits>

namespace fsdpc::rt {

/// T is an unsigned integer of the element's size. The regions must not overlap.
template <class T>
void copyStrided(const Context &c, const CopyShape &shape, const T *from, T *to);

/// Does nothing if both addresses are the same.
void copyBytes(const Context &c, const void *from, void *to, std::int64_t bytes);
/// This rank's share of `from`. The ranks of its group, `stride` apart, hold equal shares in order.
void takeShard(const Context &c, const void *from, void *to, std::int64_t shardBytes, int groupSize, int stride);
void zeroBytes(const Context &c, void *to, std::int64_t bytes);
/// The f32 copy of bf16 elements, for a kernel without bf16 support, and back. The first returns `to`.
template <class T>
float *promoted(const Context &c, const T *from, float *to, std::int64_t count);
template <class T>
void narrow(const Context &c, const float *from, T *to, std::int64_t count);
/// T: float, double, int64, int32, uint8, bool, Bfloat16 or Float16.
template <class T>
void fill(const Context &c, T *to, std::int64_t count, std::type_identity_t<T> value);

} // namespace fsdpc::rt
