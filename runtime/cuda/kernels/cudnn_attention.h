// Attention of bf16 through cuDNN's frontend, for programs that were compiled with --attention cudnn. It has the same
// meaning and layouts as our own kernels (attention.h). cuDNN chooses where it rounds. Only deterministic algorithms
// are used.
//
// Requirements on the shape (the compiler marks only such nodes): no mask; queryWidth and valueWidth equal, a multiple
// of 8 and at most 128; causal only with as many queries as keys; two or more of either; a positive scale. Operands and
// results are aligned to 16 bytes.
//
// Building this needs the headers of cudnn_frontend 1.32 or later. Without them nothing here is defined, and only
// programs that use it fail to link.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/bfloat16.h"
#include "runtime/common/kernel_shapes.h"

#include <memory>

namespace fsdpc::rt {

/// The forward pass or its derivative, with cuDNN's plan for one shape.
class CudnnAttention {
public:
  enum class Pass { forward, backward };
  CudnnAttention();
  ~CudnnAttention();
  /// Called once, in start(): builds the graph and chooses the plan, which may take seconds. `workspaceBytes`: the
  /// planned workspace of every run. Throws Failure{memory} if this cuDNN and device have no plan within it.
  void create(const Context &c, Pass pass, const AttentionShape &shape, std::int64_t workspaceBytes);

  /// Pass::forward. lse [B, H, Sq], natural logarithm.
  void operator()(const Bfloat16 *q, const Bfloat16 *k, const Bfloat16 *v, Bfloat16 *o, float *lse,
                  Workspace workspace) const;
  /// Pass::backward
  void operator()(const Bfloat16 *dO, const Bfloat16 *q, const Bfloat16 *k, const Bfloat16 *v, const Bfloat16 *o,
                  const float *lse, Bfloat16 *dq, Bfloat16 *dk, Bfloat16 *dv, Workspace workspace) const;

private:
  struct Plan;
  std::unique_ptr<Plan> plan;
};

} // namespace fsdpc::rt
