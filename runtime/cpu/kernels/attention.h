// Scaled dot-product attention and its derivative. Buffers of size Sq x Sk exist only within a block of queries.
//
//   s = scale * q k^T + masks;   p = softmax(s);   o = p v
//   With a softcap c the scaled scores are c * tanh(scale * q k^T / c), and ds carries the factor 1 - tanh^2.
//   Key j is visible to query i when j <= i if causal, |i - j| < window if there is one, and both have the same
//   document if there are documents. AttentionShape::hidden is added to the score of any other key, in place of
//   masks or beside them.
//   lse = log(sum(exp(s))) is kept per query. The derivative recomputes p = exp(s - lse) from it:
//   - dv = p^T do
//   - ds = p * (do v^T - rowsum(do * o));   dq = scale * ds k;   dk = scale * ds^T q
//
// If k and v have fewer heads, head h of q reads head h / (heads / keyHeads) of theirs, and dk and dv are sums over
// such a group, in the order of its heads.
//
// Sums are in f32. Operands of 16 bits are multiplied as f32 copies of one head, except bf16 where all ranks'
// processors have AMX: p and ds are rounded to bf16 then, as operands of products (attention_tiles.h).
//
// Heads are independent (for the derivative: heads of k) and distributed over threads. The order of sums within a head
// does not depend on the number of threads.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// Scratch of one thread in bytes. Both kernels use as many threads as the workspace has space for, at least one.
template <class T = float>
std::int64_t attentionScratchBytes(const AttentionShape &shape);
template <class T = float>
std::int64_t attentionGradScratchBytes(const AttentionShape &shape);

/// lse [B, H, Sq]. T: float, Bfloat16 or Float16.
template <class T>
void attention(const Context &c, const AttentionShape &shape, const T *q, const T *k, const T *v,
               const AttentionMasks &masks, T *o, float *lse, Workspace workspace);
template <class T>
void attentionGrad(const Context &c, const AttentionShape &shape, const T *dO, const T *q, const T *k, const T *v,
                   const T *o, const float *lse, const AttentionMasks &masks, T *dq, T *dk, T *dv, Workspace workspace);

} // namespace fsdpc::rt
