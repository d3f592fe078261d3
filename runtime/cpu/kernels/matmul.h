// Matmuls through oneDNN's matmul primitive.
//
// Operands in bf16 are multiplied as they are if all ranks' processors can (cpu_level.h), else as f32 copies, as
// f16 always is. Sums are in f32. The result is rounded once in either case.
#pragma once

#include "runtime/common/kernel_shapes.h"
#include "runtime/cpu/kernels/library.h"
#include "runtime/cpu/kernels/promoted_product.h"

namespace fsdpc::rt {

class Matmul {
public:
  /// Called once, in start(). `workspaceBytes`: the planned scratch of each run.
  void create(const Context &c, const MatmulShape &shape, std::int64_t workspaceBytes);
  /// Operands and result have the shape's element types.
  void operator()(const void *a, const void *b, void *out, Workspace workspace) const {
    run(a, b, nullptr, out, workspace);
  }
  /// For a shape with a bias.
  void operator()(const void *a, const void *b, const void *bias, void *out, Workspace workspace) const {
    run(a, b, bias, out, workspace);
  }
  std::int64_t scratchBytes() const { return ownBytes + primitive.scratchBytes(); }

private:
  void run(const void *a, const void *b, const void *bias, void *out, Workspace workspace) const;
  void multiply(const ProductTensors &tensors, Workspace workspace) const;
  void multiplyPanels(const ProductTensors &tensors, Workspace workspace) const;
  void describe(dnnl_data_type_t elements, dnnl_data_type_t result, const Context &c, std::int64_t workspaceBytes);

  MatmulShape shape;
  Context threads; ///< only their number
  Primitive primitive;
  PromotedProduct promotion;
  std::int64_t panelColumns = 0; ///< of b, copied at a time; 0: b is read where it is
  std::int64_t ownBytes = 0;     ///< scratch before that of the primitive
};

} // namespace fsdpc::rt
