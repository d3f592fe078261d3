// The sum over ranks: a balanced binary tree in rank order.
//
//   sum(r0 .. rn-1) = sum(first p) + sum(the other n - p),  p the largest power of two below n
//
// so ((r0+r1)+(r2+r3)) for four, ((r0+r1)+r2) for three, ((r0+r1)+(r2+r3))+r4 for five. Every transport and every
// collective adds in this order, element by element, in the element's own type, so results are bitwise identical on
// every rank and transport. 16-bit elements are added in float, and the total is rounded once.
#pragma once

#include "runtime/common/program.h"

#include <cstddef>
#include <cstdint>

namespace fsdpc::rt {

/// destination[i] = sum over k < count of element i of `sources[k]`, for i < elements. `destination` may be one of the
/// sources, otherwise it overlaps none. Supports floats, i64 and i32; any other type is a Failure{internal}.
void treeSum(const std::byte *const *sources, int count, void *destination, std::int64_t elements, DType dtype);

} // namespace fsdpc::rt
