// The loss of a linear layer's logits, chunk by chunk (runtime/common/chunked_loss.h).
#pragma once

#include "runtime/common/chunked_loss.h"
#include "runtime/cpu/kernels/loss.h"
#include "runtime/cpu/kernels/matmul.h"
#include "runtime/cpu/kernels/reduce.h"

namespace fsdpc::rt {

using LossMatmuls = ChunkMatmuls<Matmul>;

/// Floats that stand for values of a 16-bit type are rounded to it, in place.
void roundTo(const Context &c, DType dtype, std::int64_t count, float *x);
/// x = cap * tanh(x / cap)
void capLogits(const Context &c, float cap, std::int64_t count, float *x);
/// sum += x
void addTo(const Context &c, std::int64_t count, const float *x, float *sum);

} // namespace fsdpc::rt
