// Shared queries about attention and its derivative.
#pragma once

#include "ir/node.h"

namespace fsdpc {

/// True for attention and attention_grad.
bool isAttention(const Node &node);

/// True if the target's library computes it.
bool isAttentionByLibrary(const Node &node);

} // namespace fsdpc
