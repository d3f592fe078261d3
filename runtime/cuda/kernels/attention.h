// Scaled dot-product attention and its derivative, with the meaning and arguments of the cpu target
// (runtime/cpu/kernels/attention.h). T: float, Bfloat16 or Float16.
//
// No buffer of size Sq x Sk exists. A block keeps a tile of one sequence and walks over tiles of the other, with a
// running maximum and sum of its softmax (forward) or recomputing exp(s - lse) (backward). Products of 16-bit floats
// are exact and are accumulated in f32. Probabilities and the derivative of scores are rounded to T before they are
// operands of the next matmul. The order of every sum is fixed by the shape alone.
//
// Head widths are at most 256. k and v may have fewer heads than q: `AttentionShape::keyHeads`, a divisor of `heads`;
// head h of q then uses head h / (heads / keyHeads) of k and v, and dk, dv are sums over the heads of q that share one.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// Scratch in bytes, exact. Forward needs none; the derivative keeps rowsum(dO * o) per query.
std::int64_t attentionScratchBytes(const AttentionShape &shape);
std::int64_t attentionGradScratchBytes(const AttentionShape &shape);

/// lse [B, H, Sq], natural logarithm.
template <class T>
void attention(const Context &c, const AttentionShape &shape, const T *q, const T *k, const T *v,
               const AttentionMasks &masks, T *o, float *lse, Workspace workspace);
template <class T>
void attentionGrad(const Context &c, const AttentionShape &shape, const T *dO, const T *q, const T *k, const T *v,
                   const T *o, const float *lse, const AttentionMasks &masks, T *dq, T *dk, T *dv, Workspace workspace);

} // namespace fsdpc::rt
