// Replaces rows of a tensor by rows of updates, or combines them. Indices as in index.h.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// y = x, then every update changes the row that its tuple addresses, in the order of the tuples. Without a reduction,
/// elements may be any unsigned integers of the element size. max and min propagate NaN. x and y do not overlap.
template <class T, class Index>
void scatterNd(const Context &c, const GatherNdShape &shape, Reduction reduction, const T *x, const Index *indices,
               const T *updates, T *y);

#define FSDPC_SCATTER_ND(prefix, T)                                                                                    \
  prefix template void scatterNd(const Context &, const GatherNdShape &, Reduction, const T *, const std::int64_t *,   \
                                 const T *, T *);                                                                      \
  prefix template void scatterNd(const Context &, const GatherNdShape &, Reduction, const T *, const std::int32_t *,   \
                                 const T *, T *);
#define FSDPC_SCATTERING(prefix)                                                                                       \
  FSDPC_SCATTER_ND(prefix, float)                                                                                      \
  FSDPC_SCATTER_ND(prefix, double)                                                                                     \
  FSDPC_SCATTER_ND(prefix, std::int64_t)                                                                               \
  FSDPC_SCATTER_ND(prefix, std::int32_t)                                                                               \
  FSDPC_SCATTER_ND(prefix, std::uint8_t)                                                                               \
  FSDPC_SCATTER_ND(prefix, std::uint16_t)                                                                              \
  FSDPC_SCATTER_ND(prefix, std::uint32_t)                                                                              \
  FSDPC_SCATTER_ND(prefix, std::uint64_t)
FSDPC_SCATTERING(extern)

} // namespace fsdpc::rt
