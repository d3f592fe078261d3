// Copies of elements: transposes, slices, pads, concatenations and broadcasts are all one strided copy.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/gradient_stash.h"
#include "runtime/common/kernel_shapes.h"

#include <cstring>

namespace fsdpc::rt {

/// T is an unsigned integer of the element's size. The regions must not overlap.
template <class T>
void copyStrided(const Context &c, const CopyShape &shape, const T *from, T *to);
extern template void copyStrided(const Context &, const CopyShape &, const std::uint8_t *, std::uint8_t *);
extern template void copyStrided(const Context &, const CopyShape &, const std::uint16_t *, std::uint16_t *);
extern template void copyStrided(const Context &, const CopyShape &, const std::uint32_t *, std::uint32_t *);
extern template void copyStrided(const Context &, const CopyShape &, const std::uint64_t *, std::uint64_t *);

/// Does nothing if both addresses are equal.
void copyBytes(const Context &c, const void *from, void *to, std::int64_t bytes);
/// Copies this rank's shard of `from`. The ranks of its group, `stride` apart, have equal shards, stored one after the
/// other.
void takeShard(const Context &c, const void *from, void *to, std::int64_t shardBytes, int groupSize, int stride);
void zeroBytes(const Context &c, void *to, std::int64_t bytes);
/// Copies a constant table of the program.
inline void copyTable(const Context &c, const std::uint64_t *table, void *to, std::int64_t bytes) {
  copyBytes(c, table, to, bytes);
}
/// Passes a parameter's tensor, or parts of it, to Context::tap.
inline void tap(const Context &c, int parameter, const void *data, std::int64_t bytes, const TapParts &parts = {}) {
  c.tap->takeParts(parameter, data, bytes, parts);
}
/// Saves a segment's gradient if Context::stash is set, and restores it later.
inline void stash(const Context &c, int segment, const void *data, std::int64_t bytes) {
  if (c.stash)
    std::memcpy(c.stash->of(segment), data, static_cast<std::size_t>(bytes));
}
inline void unstash(const Context &c, int segment, void *data, std::int64_t bytes) {
  std::memcpy(data, c.stash->of(segment), static_cast<std::size_t>(bytes));
}
/// Conversions for a kernel that supports only f32: 16-bit floats to f32, and back. The first returns `to`.
template <class T>
float *promoted(const Context &c, const T *from, float *to, std::int64_t count);
template <class T>
void narrow(const Context &c, const float *from, T *to, std::int64_t count);
template <class T>
void fill(const Context &, T *to, std::int64_t count, T value) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = value;
}

} // namespace fsdpc::rt
