// Questions about attention and its derivative that several parts ask.
#pragma once

#include "ir/node.h"

namespace fsdpc {

/// attention or attention_grad?
bool isAttention(const Node &node);

/// Is it one that the target's library computes?
bool isAttentionByLibrary(const Node &node);

} // namespace fsdpc
