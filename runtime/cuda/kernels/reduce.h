// Reductions over any axes, with an order of summation that depends on shape and element type only.
//
// T: float, double, Bfloat16, int64, int32, uint8. Bfloat16 is reduced in float and rounded once. NaN in x gives NaN.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// Groups of 16 floats are summed in float, four at a time as a tree, and the groups' sums in double. The error is at
/// most 6 * 2^-24 of the sum of absolute elements, plus half a unit of the result. An empty sum is 0. R: T; or float
/// for Bfloat16.
template <class T, class R>
void reduceSum(const Context &c, const ReduceShape &shape, const T *x, R *out);
/// The maximum of no elements is the lowest value (-infinity), the minimum the highest.
template <class T>
void reduceMax(const Context &c, const ReduceShape &shape, const T *x, T *out);
template <class T>
void reduceMin(const Context &c, const ReduceShape &shape, const T *x, T *out);
/// An empty product is 1.
template <class T>
void reduceProd(const Context &c, const ReduceShape &shape, const T *x, T *out);

/// out [outer, inner]: the position of the largest; the first of equal values; NaN is larger than any number.
template <class T>
void argMax(const Context &c, const AxisShape &shape, const T *x, std::int64_t *out);
/// Running sums along `count`. Floats are summed in double, each result rounded once. exclusive: without the element
/// itself; reverse: from the end. out may be x.
template <class T>
void cumulativeSum(const Context &c, const AxisShape &shape, bool exclusive, bool reverse, const T *x, T *out);

} // namespace fsdpc::rt
