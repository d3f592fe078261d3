// From what a rank adds up for a segment's parameters to the gradient that the segment's optimizer takes.
#pragma once

#include "passes/shard/sharded_states.h"

namespace fsdpc {

class GradientSums {
public:
  /// The module's update is still the train stage's: it tells whether optimizers take gradients of 16 bits.
  GradientSums(const Module &module, const ShardedStates &states, Accumulators &accumulators,
               const PipelineOptions &options);

  /// grad.<segment> of a step of one micro-step: `local` has this rank's sum for each parameter.
  Value *reduced(Builder &builder, const State &segment, const llvm::StringMap<Value *> &local) const;
  /// Of several: adds this micro-step's to the segment's accumulator. What makes the sum smaller happens here, in every
  /// micro-step, what does not once, in `gradient`; with PipelineOptions::sumsRanksFirst all of it happens here.
  void accumulate(Builder &builder, const State &segment, const llvm::StringMap<Value *> &local) const;

  /// grad.<segment> behind the last micro-step, in the type that it was sent in: an argument, or what was accumulated.
  Value *gradient(Builder &builder, const State &segment) const;
  /// As the optimizer and the norm take it.
  Value *operand(Builder &builder, const State &segment) const;

private:
  Value *packed(Builder &builder, const State &segment, const llvm::StringMap<Value *> &local, bool isRounded) const;
  std::string replicasOf(const State &segment) const;
  bool isSentLater(const State &segment) const;
  Value *scattered(Builder &builder, const State &segment, Value *sum) const;
  Value *summedOverReplicas(Builder &builder, const State &segment, Value *share) const;
  Value *accumulated(Builder &builder, const State &segment) const;

  const Module &module;
  const ShardedStates &states;
  Accumulators &accumulators;
  bool sumsRanksFirst;
  bool readsLowPrecision = false; ///< optimizers take gradients of 16 bits as they are
};

} // namespace fsdpc
