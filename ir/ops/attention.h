// Shared queries about attention and its derivative.
#pragma once

#include "ir/node.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

/// The keys [first, end) that `causal` and `window` leave visible to a query.
struct VisibleKeys {
  int64_t first, end;

  VisibleKeys(const AttentionAttributes &attributes, int64_t query, int64_t keys);
  bool contains(int64_t key) const { return key >= first && key < end; }
};

/// True for attention and attention_grad.
bool isAttention(const Node &node);

/// True if the target's library computes it.
bool isAttentionByLibrary(const Node &node);

} // namespace fsdpc
