// What stands between the gradients and the optimizers of an update where the options ask for it: the global norm, what
// clips it, whether the step counts, and the loss scale of the next one. Built twice, over whole gradients in the train
// stage and over shards, from one description.
#pragma once

#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "passes/options.h"

namespace fsdpc {

struct UpdateGuard {
  ClipNormAttributes clip;
  std::optional<LossScaleAttributes> dynamicScale; ///< absent: the loss scale stays what it is, if there is one
  bool countsSteps = false; ///< state optimizer_step stands for step: steps that applied, plus one
};

/// What the options ask for; nullopt where every update is applied as it is.
std::optional<UpdateGuard> updateGuard(const OptimizerOptions &options);
/// As the train stage's update has it.
std::optional<UpdateGuard> updateGuard(const Module &train);

/// Adds the scalar states that it reads, if they are not there yet.
void addGuardStates(Module &module, const UpdateGuard &guard, const OptimizerOptions &options);

/// The loss scale of this step, in f32; null where there is none. A read of the state.
Value *readLossScale(Builder &builder);

/// 1 / loss scale, to be given to `unscaled`; null where there is none.
Value *readUnscale(Builder &builder);
/// A gradient as it would be without the loss scale.
Value *unscaled(Builder &builder, Value *gradient, Value *unscale);

class GuardBuilder {
public:
  /// Builds clip_norm over accumulators that together hold every gradient once, and spike_guard. `update` gets the loss
  /// as an argument.
  GuardBuilder(Builder &builder, const UpdateGuard &guard, llvm::ArrayRef<Value *> accumulators);
  /// The last operands of every optimizer.
  Value *scale() const { return clip->result(1); }
  Value *applies() const { return spikes->result(0); }
  /// Behind the optimizers: counts the step, adjusts the loss scale, and returns what the runtime reads: grad_norm and
  /// applied, and where the loss scale is dynamic next_loss_scale and loss_scale_exhausted.
  void finish();

private:
  void judgeNorm();
  void countStep();
  Node *adjustLossScale();

  Builder &builder;
  const UpdateGuard &guard;
  Node *clip = nullptr, *spikes = nullptr;
};

} // namespace fsdpc
