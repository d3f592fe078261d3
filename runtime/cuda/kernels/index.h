// Gathering and scattering along an axis. Negative indices count from the end.
//
// Data is checked when it is loaded, so an index outside the axis is one the model computed. The cpu target ends the
// program there; a kernel tells the host (index_faults.h), which ends it when it has what the step computed. Until then
//   gather, gatherNd   give elements with all bits set: NaN for every float type, -1 for signed integers
//   scatterAdd         counts, for float types, the update as NaN at position 0; for integers it is left out
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// y = x at the indices. T is an unsigned integer of the element's size; Index is int64 or int32.
template <class T, class Index>
void gather(const Context &c, const GatherShape &shape, const T *x, const Index *indices, T *y);

/// None: the cpu target's has some.
inline std::int64_t scatterAddScratchBytes(const GatherShape &) { return 0; }
/// x = the sums of the updates of each index, in the order of the indices: of floats in float, eight at a time, and
/// these sums in double, rounded once, so off by at most 8 * 2^-24 of the sum of absolute updates, however often an
/// index comes. T is float, double, int64, int32, uint8 or Bfloat16, and so are the updates, which may be Bfloat16 for
/// an x of float too. The work grows with the square of `count`: meant for the tokens of one micro-step, some ten
/// thousand.
template <class Update, class T, class Index>
void scatterAdd(const Context &c, const GatherShape &shape, const Index *indices, const Update *updates, T *x,
                Workspace = {});

/// As gather, with an index per leading dim of x.
template <class T, class Index>
void gatherNd(const Context &c, const GatherNdShape &shape, const T *x, const Index *indices, T *y);

/// out [outer, count, inner] = start + step * position on `count`. T is float, double, int64, int32, uint8 or Bfloat16.
template <class T>
void iota(const Context &c, std::int64_t outer, std::int64_t count, std::int64_t inner, double start, double step,
          T *out);

} // namespace fsdpc::rt
