// Matrix products through oneDNN's matmul primitive.
#pragma once

#include "runtime/common/kernel_shapes.h"
#include "runtime/cpu/kernels/library.h"

namespace fsdpc::rt {

class Matmul {
public:
  /// Once, in start(). `workspaceBytes`: what the plan gives every run.
  void create(const Context &c, const MatmulShape &shape, std::int64_t workspaceBytes);
  void operator()(const float *a, const float *b, float *out, Workspace workspace) const {
    run(a, b, nullptr, out, workspace);
  }
  /// Of a shape with a bias.
  void operator()(const float *a, const float *b, const float *bias, float *out, Workspace workspace) const {
    run(a, b, bias, out, workspace);
  }
  std::int64_t scratchBytes() const { return primitive.scratchBytes(); }

private:
  friend class MatmulLog;
  void run(const float *a, const float *b, const float *bias, float *out, Workspace workspace) const;

  MatmulShape shape;
  Primitive primitive;
};

/// The matrix products of one step, to be timed alone by the same primitives on the same memory (`--time_matmuls`).
/// What a replay writes is dead memory after a step: products never write state.
class MatmulLog {
public:
  /// Products run from now on are noted, until `stop`.
  static void start();
  static void stop();
  /// Runs the noted products once more, back to back.
  static double replayMicroseconds();
};

} // namespace fsdpc::rt
