// Nodes between the gradients and the optimizers of a guarded update: the global norm, its clipping, whether the step
// is applied, and the loss scale of the next step. Built twice from one description: over unsharded gradients in the
// train stage, and over shards.
#pragma once

#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "passes/options.h"

namespace fsdpc {

struct UpdateGuard {
  ClipNormAttributes clip;
  std::optional<LossScaleAttributes> dynamicScale; ///< absent: the loss scale is constant, if there is one
  bool countsSteps = false;                        ///< state optimizer_step replaces step: applied steps, plus one
};

/// The guard that the options ask for; nullopt if every update is applied unconditionally.
std::optional<UpdateGuard> updateGuard(const OptimizerOptions &options);
/// The guard in the train stage's update.
std::optional<UpdateGuard> updateGuard(const Module &train);

/// Adds the scalar states that the guard reads, if they do not exist yet.
void addGuardStates(Module &module, const UpdateGuard &guard, const OptimizerOptions &options);

/// The loss scale of this step, in f32; null if there is none. Reads the state.
Value *readLossScale(Builder &builder);

/// 1 / loss scale, the operand of `unscaled`; null if there is none.
Value *readUnscale(Builder &builder);
/// The gradient divided by the loss scale.
Value *unscaled(Builder &builder, Value *gradient, Value *unscale);

class GuardBuilder {
public:
  /// Builds clip_norm over accumulators that together hold every gradient once, and spike_guard. Adds the loss as an
  /// argument of `update`.
  GuardBuilder(Builder &builder, const UpdateGuard &guard, llvm::ArrayRef<Value *> accumulators);
  /// The last operands of every optimizer.
  Value *scale() const { return clip->result(1); }
  Value *applies() const { return spikes->result(0); }
  /// After the optimizers: counts the step, adjusts the loss scale, and returns the values that the runtime reads:
  /// grad_norm and applied, and with a dynamic loss scale next_loss_scale and loss_scale_exhausted.
  void finish();

private:
  void checkNorm();
  void countStep();
  Node *adjustLossScale();

  Builder &builder;
  const UpdateGuard &guard;
  Node *clip = nullptr, *spikes = nullptr;
};

} // namespace fsdpc
