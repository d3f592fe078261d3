// Convolutions through oneDNN. Operands and results have plain layouts (N C spatial, M C kernel). Internally oneDNN
// chooses layouts, and rearranged tensors are stored in the node's scratch.
//
// Operands in bf16 are convolved as they are if all ranks' processors can (cpu_level.h) and oneDNN has more than a
// reference for the shape, else as f32 copies, as f16 always is. Sums are in f32.
#pragma once

#include "runtime/common/kernel_shapes.h"
#include "runtime/cpu/kernels/library.h"
#include "runtime/cpu/kernels/promoted_product.h"

namespace fsdpc::rt {

/// One of the three passes. Each has two operands and a result: (x, w) -> y, (dy, w) -> dx, (x, dy) -> dw.
class Convolution {
public:
  enum class Pass { forward, gradInput, gradWeight };
  /// Called once, in start(). `workspaceBytes`: the planned scratch of each run.
  void create(const Context &c, Pass pass, const ConvolutionShape &shape, std::int64_t workspaceBytes);
  /// Operands and result have the shape's element types.
  void operator()(const void *a, const void *b, void *out, Workspace workspace) const;
  /// forward with a bias [outputChannels]
  void operator()(const void *a, const void *b, const void *bias, void *out, Workspace workspace) const;
  std::int64_t scratchBytes() const { return promotion.bytes() + neededBytes; }

private:
  struct Tensor {
    Primitive reorder;            ///< between the plain layout and oneDNN's; absent if they are equal
    std::int64_t offsetBytes = 0; ///< of the rearranged tensor in the scratch
  };
  struct Types; ///< in the library's terms
  bool createAs(const Context &c, Pass pass, const ConvolutionShape &shape, const Types &types,
                std::int64_t workspaceBytes);
  bool arrange(const Context &c, int threads, dnnl_primitive_desc_t description, Pass pass,
               const dnnl_memory_desc_t *plain, std::int64_t workspaceBytes, dnnl_memory_desc_t *chosen);
  void run(const void *a, const void *b, const void *bias, void *out, Workspace workspace) const;
  void convolve(const ProductTensors &tensors, Workspace workspace) const;
  Context threads; ///< only their number
  PromotedProduct promotion;
  Tensor tensors[3]; ///< a, b, out
  Primitive primitive;
  std::int64_t scratchOffsetBytes = 0;
  std::int64_t neededBytes = 0;
  std::int64_t outputBytes = 0;
};

} // namespace fsdpc::rt
