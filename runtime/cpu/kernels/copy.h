// Moving elements: transposes, slices, pads, concatenations and broadcasts are all one strided copy.
#pragma once

#include "runtime/cpu/kernels/address.h"

namespace fsdpc::rt {

/// Element [i0, i1, ...] goes from `from + sum(i * fromStrides)` to `to + sum(i * toStrides)`; strides in elements, any
/// sign; a stride of 0 reads one element for a whole axis.
struct CopyShape {
  int rank = 0;
  std::int64_t dims[maxRank] = {}, fromStrides[maxRank] = {}, toStrides[maxRank] = {};
};

/// T is an unsigned integer of the element's size. The regions must not overlap.
template <class T>
void copyStrided(const Context &c, const CopyShape &shape, const T *from, T *to);
extern template void copyStrided(const Context &, const CopyShape &, const std::uint8_t *, std::uint8_t *);
extern template void copyStrided(const Context &, const CopyShape &, const std::uint16_t *, std::uint16_t *);
extern template void copyStrided(const Context &, const CopyShape &, const std::uint32_t *, std::uint32_t *);
extern template void copyStrided(const Context &, const CopyShape &, const std::uint64_t *, std::uint64_t *);

/// Does nothing when both are the same place.
void copyBytes(const Context &c, const void *from, void *to, std::int64_t bytes);
/// This rank's share of `from`, where the ranks of its group, `stride` apart, hold equal shares one after the other.
void takeShard(const Context &c, const void *from, void *to, std::int64_t shardBytes, int groupSize, int stride);
void zeroBytes(const Context &c, void *to, std::int64_t bytes);
template <class T>
void fill(T *to, std::int64_t count, T value) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = value;
}

} // namespace fsdpc::rt
