// Turns the local gradient sums of a segment's parameters into the gradient that the segment's optimizer uses.
#pragma once

#include "passes/shard/sharded_states.h"

namespace fsdpc {

class GradientSums {
public:
  /// Requires: the module's update is still the train stage's. It shows whether optimizers read 16-bit gradients.
  GradientSums(const Module &module, const ShardedStates &states, Accumulators &accumulators,
               const PipelineOptions &options);

  /// This rank's sums, by parameter: `others` of everything, except that the sum of the lookups of a row table that
  /// exchanges its gradient is in `lookups`.
  struct Local {
    llvm::StringMap<Value *> others, lookups;
  };

  /// grad.<segment> for a step of one micro-step.
  Value *reduced(Builder &builder, const State &segment, const Local &local) const;
  /// For several micro-steps: adds this micro-step's gradient to the segment's accumulator. Reductions that make the
  /// sum smaller happen here, in every micro-step; the others happen once, in `gradient`. With
  /// PipelineOptions::sumsRanksFirst all of them happen here.
  void accumulate(Builder &builder, const State &segment, const Local &local) const;

  /// grad.<segment> after the last micro-step, in the type it was sent in: an argument, or the accumulated value.
  Value *gradient(Builder &builder, const State &segment) const;
  /// The gradient in the form that the optimizer and the norm read.
  Value *operand(Builder &builder, const State &segment) const;

private:
  Value *packed(Builder &builder, const State &segment, const Local &local, bool isRounded) const;
  std::string replicasOf(const State &segment) const;
  bool isSentLater(const State &segment) const;
  Value *scattered(Builder &builder, const State &segment, Value *sum) const;
  Value *scatteredRows(const State &segment, Node &lookup, bool sumsReplicas) const;
  Value *summedOverReplicas(Builder &builder, const State &segment, Value *share) const;
  Value *accumulated(Builder &builder, const State &segment) const;

  const Module &module;
  const ShardedStates &states;
  Accumulators &accumulators;
  bool sumsRanksFirst;
  bool readsLowPrecision = false; ///< optimizers read 16-bit gradients directly
};

} // namespace fsdpc
