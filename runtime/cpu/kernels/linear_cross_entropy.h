// The loss of a linear layer's logits, chunk by chunk (runtime/common/chunked_loss.h).
//
// Operands in bf16 are multiplied as they are if all ranks' processors can (cpu_level.h): logits and their derivatives
// are bf16 then, as matmuls write and read them. Otherwise the loss is that of f32 copies, which are made once for all
// chunks. Values are the same up to the order of sums: logits and derivatives are rounded to bf16 in either case.
#pragma once

#include "runtime/common/chunked_loss.h"
#include "runtime/cpu/cpu_level.h"
#include "runtime/cpu/kernels/loss.h"
#include "runtime/cpu/kernels/matmul.h"
#include "runtime/cpu/kernels/reduce.h"

namespace fsdpc::rt {

/// A matmul of chunks. Its operands are the loss's, or the f32 copies of them.
class LossMatmul : public Matmul {
public:
  void create(const Context &c, MatmulShape shape, std::int64_t workspaceBytes) {
    if (!multipliesBf16(c))
      shape.elements = shape.result = DType::f32;
    Matmul::create(c, shape, workspaceBytes);
  }
};
using LossMatmuls = ChunkMatmuls<LossMatmul>;

/// For operands in bf16; arguments are those of chunked_loss.h. The scratch has room for either way
/// (scratch_sizes::LinearLossCopies).
void linearCrossEntropy(const Context &c, const LinearLossShape &shape, const LossMatmuls &whole,
                        const LossMatmuls &rest, const Bfloat16 *hidden, const Bfloat16 *weight,
                        const std::int64_t *labels, const Bfloat16 *bias, float *terms, std::int64_t *predicted,
                        Workspace workspace);
void linearCrossEntropyGrad(const Context &c, const LinearLossShape &shape, const LossMatmuls &whole,
                            const LossMatmuls &rest, const float *dterms, const Bfloat16 *hidden,
                            const Bfloat16 *weight, const std::int64_t *labels, const Bfloat16 *bias, float *terms,
                            Bfloat16 *dhidden, float *dweight, float *dbias, Workspace workspace);

/// Floats that stand for values of a 16-bit type are rounded to it, in place.
void roundTo(const Context &c, DType dtype, std::int64_t count, float *x);
inline void roundTo(const Context &, DType, std::int64_t, Bfloat16 *) {}
/// x = cap * tanh(x / cap), rounded to the type of x
void capLogits(const Context &c, float cap, std::int64_t count, float *x);
void capLogits(const Context &c, float cap, std::int64_t count, Bfloat16 *x);
/// sum += x
void addTo(const Context &c, std::int64_t count, const float *x, float *sum);
/// Those of reduce.h, for rows of bf16. The sums are over rows.
void argMax(const Context &c, const AxisShape &rows, const Bfloat16 *x, std::int64_t *out);
void reduceSum(const Context &c, const ReduceShape &columns, const Bfloat16 *x, float *out);

} // namespace fsdpc::rt
