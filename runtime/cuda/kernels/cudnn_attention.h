// Attention of bf16 through cuDNN's frontend, for programs that were compiled with --attention cudnn: the same meaning
// and layouts as the own kernels (attention.h), rounded in places of cuDNN's choice, by deterministic algorithms only.
//
// What must hold of the shape (the compiler marks such nodes alone): no mask; queryWidth and valueWidth equal, a
// multiple of 8 and at most 128; causal with as many queries as keys; two or more of either; a positive scale. Operands
// and results lie on 16 bytes.
//
// Needs the headers of cudnn_frontend 1.32 or later, where this is built: without them nothing here is defined, and
// only programs that ask for it do not link.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/bfloat16.h"
#include "runtime/common/kernel_shapes.h"

#include <memory>

namespace fsdpc::rt {

/// Forward or its derivative, with cuDNN's plan for one shape.
class CudnnAttention {
public:
  enum class Pass { forward, backward };
  CudnnAttention();
  ~CudnnAttention();
  /// Once, in start(): builds the graph and chooses the plan, which may take seconds. `workspaceBytes`: what the
  /// program plans for every run. Throws Failure{memory} where no plan of this cuDNN and device gets by with it.
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
