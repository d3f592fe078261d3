// The largest or smallest elements of rows, in order.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// The first k of every row by size and, among equal ones, by position; NaN counts as the largest. T is float, double,
/// int64, int32 or uint8. The work grows with count x k, for sorted rows with the square of count: intended for choices
/// among some thousand.
template <class T>
void topK(const Context &c, const TopKShape &shape, const T *x, T *values, std::int64_t *indices);

} // namespace fsdpc::rt
