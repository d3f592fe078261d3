// The values of attention and its derivative in f64, and the dims that they share with the checks.
#pragma once

#include "ir/op.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

/// How many operands attention and attention_grad have before the optional ones.
constexpr unsigned attentionFixed = 3, attentionGradFixed = 6;

/// The dims of q and k in either layout.
struct AttentionDims {
  int64_t batch, heads, keyHeads, queries, keys, width;
  bool sequenceFirst;

  AttentionDims(const Type &q, const Type &k, const AttentionAttributes &attributes)
      : batch(q.dim(0)), heads(q.dim(attributes.sequenceFirst ? 2 : 1)),
        keyHeads(k.dim(attributes.sequenceFirst ? 2 : 1)), queries(q.dim(attributes.sequenceFirst ? 1 : 2)),
        keys(k.dim(attributes.sequenceFirst ? 1 : 2)), width(q.dim(3)), sequenceFirst(attributes.sequenceFirst) {}

  bool headsFormGroups() const { return keyHeads == 0 ? heads == 0 : heads % keyHeads == 0; }
  /// The offset of the vector of a query in q and o, and of a key in k and v. `h` is a head of q.
  int64_t queryAt(int64_t b, int64_t h, int64_t position) const { return vectorAt(b, h, heads, position, queries); }
  int64_t keyAt(int64_t b, int64_t h, int64_t position) const {
    return vectorAt(b, h / (heads / keyHeads), keyHeads, position, keys);
  }
  Shape scores() const { return {batch, heads, queries, keys}; }

private:
  int64_t vectorAt(int64_t b, int64_t h, int64_t ofHeads, int64_t position, int64_t length) const {
    return (sequenceFirst ? (b * length + position) * ofHeads + h : (b * ofHeads + h) * length + position) * width;
  }
};

void evaluateAttention(EvaluateContext &context);

/// With p the probabilities: dv = p^T do; ds = p * (do v^T - rowsum(do * o)); dq = scale * ds k; dk = scale * ds^T q.
/// The gradient of a head of k and v is the sum over all queries of its group.
void evaluateAttentionGrad(EvaluateContext &context);

} // namespace fsdpc
