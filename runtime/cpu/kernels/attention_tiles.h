// Attention over bf16 operands on AMX tiles, one head at a time. Products are exact and their sums in f32; p and ds are
// rounded to bf16 before they are multiplied. Requires: CpuLevel::amxBf16, and fitsTiles (scratch_sizes.h).
#pragma once

#include "runtime/common/bfloat16.h"
#include "runtime/cpu/kernels/attention_heads.h"

namespace fsdpc::rt {

/// `scratch`: attentionHalvesBytes.
void forwardOnTiles(const AttentionShape &shape, std::int64_t head, const AttentionMasks &masks,
                    const AttentionTensors<Bfloat16> &tensors, std::byte *scratch);
/// For head `read` of k and v, and all heads of q that read it.
void backwardOnTiles(const AttentionShape &shape, std::int64_t read, const AttentionMasks &masks,
                     const AttentionGradTensors<Bfloat16> &tensors, std::byte *scratch);

} // namespace fsdpc::rt
