// Reductions over any axes, with an order of summation that depends on shape and element type only.
//
// T: float, double, Bfloat16, int64, int32, uint8. Bfloat16 is reduced in float and rounded once. NaN in x gives NaN.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// Runs of 16 floats are summed in float, four at a time as a tree, the runs' sums in double: off by at most 6 * 2^-24
/// of the sum of absolute elements, and half a unit of the result. An empty sum is 0. R: T; or float for Bfloat16.
template <class T, class R>
void reduceSum(const Context &c, const ReduceShape &shape, const T *x, R *out);
/// The maximum of nothing is the lowest value (-infinity), the minimum the highest.
template <class T>
void reduceMax(const Context &c, const ReduceShape &shape, const T *x, T *out);
template <class T>
void reduceMin(const Context &c, const ReduceShape &shape, const T *x, T *out);
/// An empty product is 1.
template <class T>
void reduceProd(const Context &c, const ReduceShape &shape, const T *x, T *out);

/// out [outer, inner]: where the largest is; the first of equals; NaN is larger than any number.
template <class T>
void argMax(const Context &c, const AxisShape &shape, const T *x, std::int64_t *out);
/// Running sums along `count`, of floats in double, each rounded once; exclusive: without the element itself; reverse:
/// from the end. out may be x.
template <class T>
void cumulativeSum(const Context &c, const AxisShape &shape, bool exclusive, bool reverse, const T *x, T *out);

} // namespace fsdpc::rt
