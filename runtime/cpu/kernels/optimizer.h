// Optimizer updates, one pass over a shard. Semantics, and the order of roundings, are torch.optim's (single tensor,
// f32 state, scalars in f64): scalar expressions are evaluated in f64 once per call and rounded to f32 where torch
// does. Every result may be its operand.
#pragma once

#include "runtime/cpu/kernels/address.h"

namespace fsdpc::rt {

struct SgdScalars {
  double lr, weightDecay, momentum = 0, dampening = 0;
  std::int64_t step = 1; ///< 1 in the first step: the momentum buffer starts as the gradient
  bool nesterov = false;
};
/// Without momentum: `momentumBuffer` and `momentumBufferOut` are null.
void sgd(const Context &c, std::int64_t count, const SgdScalars &scalars, const float *parameter, const float *gradient,
         const float *momentumBuffer, float *parameterOut, float *momentumBufferOut);

struct AdamScalars {
  double lr, beta1, beta2, epsilon, weightDecay;
  std::int64_t step;      ///< 1 in the first step
  bool decoupled = false; ///< AdamW
};
void adam(const Context &c, std::int64_t count, const AdamScalars &scalars, const float *parameter,
          const float *gradient, const float *average, const float *averageSquare, float *parameterOut,
          float *averageOut, float *averageSquareOut);

struct AdadeltaScalars {
  double lr, rho, epsilon, weightDecay;
};
void adadelta(const Context &c, std::int64_t count, const AdadeltaScalars &scalars, const float *parameter,
              const float *gradient, const float *averageSquare, const float *accumulatedDelta, float *parameterOut,
              float *averageSquareOut, float *accumulatedDeltaOut);

struct AdagradScalars {
  double lr, lrDecay, epsilon, weightDecay;
  std::int64_t step; ///< 1 in the first step
};
void adagrad(const Context &c, std::int64_t count, const AdagradScalars &scalars, const float *parameter,
             const float *gradient, const float *sum, float *parameterOut, float *sumOut);

struct RmspropScalars {
  double lr, alpha, epsilon, weightDecay, momentum = 0;
};
/// `momentumBuffer` is null without momentum, `averageGradient` unless centered; their results likewise.
void rmsprop(const Context &c, std::int64_t count, const RmspropScalars &scalars, const float *parameter,
             const float *gradient, const float *averageSquare, const float *momentumBuffer,
             const float *averageGradient, float *parameterOut, float *averageSquareOut, float *momentumBufferOut,
             float *averageGradientOut);

} // namespace fsdpc::rt
