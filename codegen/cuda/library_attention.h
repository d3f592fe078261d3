// Attention through cuDNN: which nodes it computes with the op's semantics, and the scratch that is planned for them.
#pragma once

#include "ir/node.h"

#include <optional>
#include <string>

namespace fsdpc {

/// Implements Target::whyNotByLibrary for an attention or attention_grad, whatever its `library` is. Both nodes of one
/// attention get the same answer. Every device from sm_80 on has kernels for the nodes that are accepted.
std::optional<std::string> cudnnRefuses(const Node &attention);

/// Scratch of an attention or attention_grad that cuDNN computes, in bytes. cuDNN reports its need only on the machine
/// itself, so this is an upper bound. A program that would need more reports an error when it starts. Forward: a fixed
/// amount. The derivative: the requirements of cuDNN's frontend (scaled_dot_product_flash_attention.h), with lengths
/// rounded up to 128:
///   dO * o summed per query, f32                       [B, H, Sq]
///   dq before it is rounded, f32                       [B, H, Sq, D]
///   dk and dv per head of q, f32, for grouped queries  [B, H, Sk, 2 D]
///   the gradient of the scores, bf16                   [B, H, Sq, Sk]
/// The deterministic algorithm keeps the last one to accumulate dq in a fixed order. Our kernels keep nothing of this
/// size.
int64_t cudnnAttentionScratchBytes(const Node &attention);

} // namespace fsdpc
