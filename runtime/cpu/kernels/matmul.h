// Matmuls through oneDNN's matmul primitive.
#pragma once

#include "runtime/common/kernel_shapes.h"
#include "runtime/cpu/kernels/library.h"

namespace fsdpc::rt {

class Matmul {
public:
  /// Called once, in start(). `workspaceBytes`: the planned scratch of each run.
  void create(const Context &c, const MatmulShape &shape, std::int64_t workspaceBytes);
  void operator()(const float *a, const float *b, float *out, Workspace workspace) const {
    run(a, b, nullptr, out, workspace);
  }
  /// For a shape with a bias.
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

/// Records the matmuls of one step, to time them alone with the same primitives on the same memory (`--time_matmuls`).
/// A replay overwrites only memory that is dead after a step: matmuls never write state.
class MatmulLog {
public:
  /// Records matmuls from now on, until `stop`.
  static void start();
  static void stop();
  /// Runs the recorded matmuls again, back to back.
  static double replayMicroseconds();
};

} // namespace fsdpc::rt
