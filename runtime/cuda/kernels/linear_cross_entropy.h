// The loss of a linear layer's logits, chunk by chunk (runtime/common/chunked_loss.h).
#pragma once

#include "runtime/common/chunked_loss.h"
#include "runtime/cuda/kernels/loss.h"
#include "runtime/cuda/kernels/matmul.h"
#include "runtime/cuda/kernels/reduce.h"

namespace fsdpc::rt {

using LossMatmul = Matmul;
using LossMatmuls = ChunkMatmuls<LossMatmul>;

/// Logits are stored in their type, so they are rounded already.
template <class T>
void roundTo(const Context &, DType, std::int64_t, T *) {}
/// x = cap * tanh(x / cap), rounded to T
template <class T>
void capLogits(const Context &c, float cap, std::int64_t count, T *x);
/// sum += x
void addTo(const Context &c, std::int64_t count, const float *x, float *sum);

} // namespace fsdpc::rt
