// Gathering and scattering along an axis. Negative indices count from the end.
//
// Data is checked when it is loaded, so an index outside the axis was computed by the model. The cpu target ends the
// program there. A kernel reports it to the host (index_faults.h), which ends the program when it has the step's
// results. Until then
//   gather, gatherNd   yield elements with all bits set: NaN for every float type, -1 for signed integers
//   scatterAdd         for float types, adds the update as NaN at position 0; for integers, skips it
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// y = x at the indices. T is an unsigned integer of the element's size; Index is int64 or int32.
template <class T, class Index>
void gather(const Context &c, const GatherShape &shape, const T *x, const Index *indices, T *y);

/// None; the cpu target needs some.
inline std::int64_t scatterAddScratchBytes(const GatherShape &) { return 0; }
/// x = the sums of the updates of each index, in the order of the indices. Floats are summed in float, eight at a time,
/// and these sums in double, rounded once. The error is at most 8 * 2^-24 of the sum of absolute updates, however often
/// an index occurs. T is float, double, int64, int32, uint8 or Bfloat16, and so are the updates, which may also be
/// Bfloat16 if x is float. The work grows with the square of `count`: intended for the tokens of one micro-step, some
/// ten thousand.
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
