// Matrix products through oneDNN's matmul primitive.
#pragma once

#include "runtime/cpu/kernels/library.h"

namespace fsdpc::rt {

/// out[batch, m, n] = op(a)[batch, m, k] x op(b)[batch, k, n], all row-major and dense. op transposes: the operand is
/// stored [batch, k, m] or [batch, n, k]. An operand with `oneA` / `oneB` set has no batch: it multiplies every batch
/// of the other.
struct MatmulShape {
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  bool transposeA = false, transposeB = false;
  bool oneA = false, oneB = false;
};

class Matmul {
public:
  /// Once, in start(). `workspaceBytes`: what the plan gives every run.
  void create(const Context &c, const MatmulShape &shape, std::int64_t workspaceBytes);
  void operator()(const float *a, const float *b, float *out, Workspace workspace) const;
  std::int64_t scratchBytes() const { return primitive.scratchBytes(); }

private:
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
