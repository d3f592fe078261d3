// Attention through cuDNN: which nodes it computes as the op means them, and the scratch that is planned for them.
#pragma once

#include "ir/node.h"

#include <optional>
#include <string>

namespace fsdpc {

/// As Target::whyNotByLibrary, of an attention or attention_grad whatever its `library` says. Both of one attention get
/// the same answer. What is left is what every device from sm_80 on has kernels for.
std::optional<std::string> cudnnRefuses(const Node &attention);

/// Scratch of an attention or attention_grad that cuDNN computes, bytes. cuDNN says what it needs on the machine alone,
/// so this is an upper bound; a program that would need more says so when it starts. Forward: a fixed amount. The
/// derivative: what cuDNN's frontend asks for (scaled_dot_product_flash_attention.h), with lengths rounded up to 128:
///   dO * o summed per query, f32                       [B, H, Sq]
///   dq before it is rounded, f32                       [B, H, Sq, D]
///   dk and dv per head of q, f32, for grouped queries  [B, H, Sk, 2 D]
///   the derivative of scores, bf16                     [B, H, Sq, Sk]
/// The last is what the deterministic algorithm keeps to add dq up in one order; our kernels keep nothing of this size.
int64_t cudnnAttentionScratchBytes(const Node &attention);

} // namespace fsdpc
