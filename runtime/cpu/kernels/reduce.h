// Reductions over any axes, with an order of summation that depends on the shape only.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// An f32 sum uses long_sum.h for each contiguous range (f64 for ranges of up to 64 elements), and f64 across ranges
/// and rows. Its error is at most 5 * 2^-24 * sum |x| up to 2^36 terms; that of a product 2^-24 of itself per factor.
/// T: float, double, int64, int32, uint8. An empty sum is 0, an empty product 1, an empty maximum the lowest value
/// (-infinity). NaN in x yields NaN.
template <class T>
void reduceSum(const Context &c, const ReduceShape &shape, const T *x, T *out);
template <class T>
void reduceMax(const Context &c, const ReduceShape &shape, const T *x, T *out);
template <class T>
void reduceMin(const Context &c, const ReduceShape &shape, const T *x, T *out);
template <class T>
void reduceProd(const Context &c, const ReduceShape &shape, const T *x, T *out);

/// out [outer, inner]: the index of the maximum, the first of equal values. NaN is larger than any number.
template <class T>
void argMax(const Context &c, const AxisShape &shape, const T *x, std::int64_t *out);
/// Running sums along `count`. f32 accumulates in f64, and each result is rounded once. exclusive: without the element
/// itself. reverse: from the end.
template <class T>
void cumulativeSum(const Context &c, const AxisShape &shape, bool exclusive, bool reverse, const T *x, T *out);

#define FSDPC_REDUCTIONS(prefix, T)                                                                                    \
  prefix template void reduceSum(const Context &, const ReduceShape &, const T *, T *);                                \
  prefix template void reduceMax(const Context &, const ReduceShape &, const T *, T *);                                \
  prefix template void reduceMin(const Context &, const ReduceShape &, const T *, T *);                                \
  prefix template void reduceProd(const Context &, const ReduceShape &, const T *, T *);                               \
  prefix template void argMax(const Context &, const AxisShape &, const T *, std::int64_t *);                          \
  prefix template void cumulativeSum(const Context &, const AxisShape &, bool, bool, const T *, T *);
FSDPC_REDUCTIONS(extern, float)
FSDPC_REDUCTIONS(extern, double)
FSDPC_REDUCTIONS(extern, std::int64_t)
FSDPC_REDUCTIONS(extern, std::int32_t)
FSDPC_REDUCTIONS(extern, std::uint8_t)

} // namespace fsdpc::rt
