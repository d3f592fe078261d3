// The largest or smallest elements of rows, in order.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// The first k elements of every row, sorted by value and, among equal ones, by position. NaN is larger than any
/// number.
template <class T>
void topK(const Context &c, const TopKShape &shape, const T *x, T *values, std::int64_t *indices);

#define FSDPC_TOP_K(prefix, T)                                                                                         \
  prefix template void topK(const Context &, const TopKShape &, const T *, T *, std::int64_t *);
#define FSDPC_TOP_KS(prefix)                                                                                           \
  FSDPC_TOP_K(prefix, float)                                                                                           \
  FSDPC_TOP_K(prefix, double)                                                                                          \
  FSDPC_TOP_K(prefix, std::int64_t)                                                                                    \
  FSDPC_TOP_K(prefix, std::int32_t)                                                                                    \
  FSDPC_TOP_K(prefix, std::uint8_t)
FSDPC_TOP_KS(extern)

} // namespace fsdpc::rt
