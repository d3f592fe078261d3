// Gather and scatter along an axis. Negative indices count from the end. An index outside the axis ends the program
// (data is checked when it is loaded, so the model computed that index).
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// y = x at the indices. T is an unsigned integer of the element size.
template <class T, class Index>
void gather(const Context &c, const GatherShape &shape, const T *x, const Index *indices, T *y);
/// Scratch of an f32 scatterAdd in bytes. Other types need none.
std::int64_t scatterAddScratchBytes(const GatherShape &shape);
/// x [outer, size, inner] = the sums of the updates of each index, in the order of the indices. Up to eight f32 updates
/// are added in f32. More are added in f64, eight at a time as an f32 tree first, and rounded once. The error is at
/// most 7 * 2^-24 of the sum of absolute updates, however often an index occurs. f32: fewer than 2^31 indices.
template <class T, class Index>
void scatterAdd(const Context &c, const GatherShape &shape, const Index *indices, const T *updates, T *x,
                Workspace workspace = {});

template <class T, class Index>
void gatherNd(const Context &c, const GatherNdShape &shape, const T *x, const Index *indices, T *y);

/// out [outer, count, inner] = start + step * position on `count`
template <class T>
void iota(const Context &, std::int64_t outer, std::int64_t count, std::int64_t inner, double start, double step,
          T *out) {
  for (std::int64_t i = 0; i < outer; ++i)
    for (std::int64_t j = 0; j < count; ++j)
      for (std::int64_t k = 0; k < inner; ++k)
        out[(i * count + j) * inner + k] = static_cast<T>(start + step * static_cast<double>(j));
}

#define FSDPC_GATHERS(prefix, T, Index)                                                                                \
  prefix template void gather(const Context &, const GatherShape &, const T *, const Index *, T *);                    \
  prefix template void gatherNd(const Context &, const GatherNdShape &, const T *, const Index *, T *);
#define FSDPC_SCATTERS(prefix, T, Index)                                                                               \
  prefix template void scatterAdd(const Context &, const GatherShape &, const Index *, const T *, T *, Workspace);
#define FSDPC_INDEXING(prefix, Index)                                                                                  \
  FSDPC_GATHERS(prefix, std::uint8_t, Index)                                                                           \
  FSDPC_GATHERS(prefix, std::uint16_t, Index)                                                                          \
  FSDPC_GATHERS(prefix, std::uint32_t, Index)                                                                          \
  FSDPC_GATHERS(prefix, std::uint64_t, Index)                                                                          \
  FSDPC_SCATTERS(prefix, float, Index)                                                                                 \
  FSDPC_SCATTERS(prefix, double, Index)                                                                                \
  FSDPC_SCATTERS(prefix, std::int64_t, Index)                                                                          \
  FSDPC_SCATTERS(prefix, std::int32_t, Index)                                                                          \
  FSDPC_SCATTERS(prefix, std::uint8_t, Index)
FSDPC_INDEXING(extern, std::int64_t)
FSDPC_INDEXING(extern, std::int32_t)

} // namespace fsdpc::rt
