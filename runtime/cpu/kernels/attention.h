// Scaled dot-product attention and its derivative. Buffers of size Sq x Sk exist only within a block of queries.
//
//   s = scale * q k^T + mask;   p = softmax(s);   o = p v
//   With a softcap c the scaled scores are c * tanh(scale * q k^T / c), and ds carries the factor 1 - tanh^2.
//   Key j is visible to query i when j <= i if causal, and |i - j| < window if there is one. AttentionShape::hidden is
//   added to the score of any other key, in place of the mask or beside it.
//   lse = log(sum(exp(s))) is kept per query; the derivative recomputes p = exp(s - lse) from it:
//   dv = p^T do;   ds = p * (do v^T - rowsum(do * o));   dq = scale * ds k;   dk = scale * ds^T q
//
// If k and v have fewer heads, head h of q reads head h / (heads / keyHeads) of theirs, and dk and dv are sums over
// such a group, in the order of its heads.
//
// Heads are independent (for the derivative: heads of k) and distributed over threads. The order of sums within a head
// does not depend on the number of threads.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// Scratch of one thread in bytes. Both kernels use as many threads as the workspace has space for, at least one.
std::int64_t attentionScratchBytes(const AttentionShape &shape);
std::int64_t attentionGradScratchBytes(const AttentionShape &shape);

/// `mask` may be null. lse [B, H, Sq].
void attention(const Context &c, const AttentionShape &shape, const float *q, const float *k, const float *v,
               const float *mask, float *o, float *lse, Workspace workspace);
void attentionGrad(const Context &c, const AttentionShape &shape, const float *dO, const float *q, const float *k,
                   const float *v, const float *o, const float *lse, const float *mask, float *dq, float *dk, float *dv,
                   Workspace workspace);

} // namespace fsdpc::rt
