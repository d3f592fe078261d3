// Matrix products through cuBLASLt of f32 or bf16, accumulated in f32. Operands of f32 are multiplied as they are, or
// rounded to tf32 where the program allows it (--allow_tf32).
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

#include <memory>
#include <string>

namespace fsdpc::rt {

/// One product of fixed shape: descriptors and algorithm are chosen once, in start(). The algorithm needs no more
/// scratch than the plan has, so which one it is, and hence every bit of the result, depends on the device, the library
/// and the shape only; with --tune on what was measured once, for every rank (runtime/cuda/tuning.h).
class Matmul {
public:
  Matmul();
  ~Matmul();
  /// `workspaceBytes`: what the plan gives every run.
  void create(const Context &c, const MatmulShape &shape, std::int64_t workspaceBytes);
  /// Of the shape's element types.
  void operator()(const void *a, const void *b, void *out, Workspace workspace) const {
    run(a, b, nullptr, out, workspace);
  }
  /// Of a shape with a bias.
  void operator()(const void *a, const void *b, const void *bias, void *out, Workspace workspace) const {
    run(a, b, bias, out, workspace);
  }

private:
  void run(const void *a, const void *b, const void *bias, void *out, Workspace workspace) const;
  struct Plan;
  std::unique_ptr<Plan> plan;
};

/// The current device and the library, as choices of algorithms depend on them.
std::string matmulMachine();

} // namespace fsdpc::rt
