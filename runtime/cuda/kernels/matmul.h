// Matmuls of f32 or bf16 through cuBLASLt, accumulated in f32. Operands of f32 are multiplied as they are, or rounded
// to tf32 if the program allows it (--allow_tf32).
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

#include <memory>
#include <string>

namespace fsdpc::rt {

/// One matmul of fixed shape. Descriptors and algorithm are chosen once, in start(). The algorithm needs no more
/// scratch than planned, so the choice, and hence every bit of the result, depends only on the device, the library and
/// the shape. With --tune it depends on one measurement, shared by every rank (runtime/cuda/tuning.h).
class Matmul {
public:
  Matmul();
  ~Matmul();
  /// `workspaceBytes`: the planned workspace of every run.
  void create(const Context &c, const MatmulShape &shape, std::int64_t workspaceBytes);
  /// Operands and result have the shape's element types.
  void operator()(const void *a, const void *b, void *out, Workspace workspace) const {
    run(a, b, nullptr, out, workspace);
  }
  /// For a shape with a bias.
  void operator()(const void *a, const void *b, const void *bias, void *out, Workspace workspace) const {
    run(a, b, bias, out, workspace);
  }

private:
  void run(const void *a, const void *b, const void *bias, void *out, Workspace workspace) const;
  struct Plan;
  std::unique_ptr<Plan> plan;
};

/// Identifies the current device and the library, on which choices of algorithms depend.
std::string matmulMachine();

} // namespace fsdpc::rt
