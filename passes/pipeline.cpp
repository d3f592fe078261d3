#include "passes/pipeline.h"

#include "passes/passes.h"

namespace fsdpc {

// One line is one pass; one block ends in one stage. The runner verifies the module after every pass.
llvm::ArrayRef<const Pass *> pipeline() {
  static const Pass *const passes[] = {
      // graph: the computation of the model
      &foldConstants,
      &canonicalize,
      &eliminateCommon,
      &recognizePatterns, // norms, GELU, SiLU, rotary, attention: before autodiff
      &canonicalize,
      &eliminateCommon, // what each layer's attention made of the same mask
      &eliminateDead,
      &initializeParameters, // initial values of parameters without values
      // from here on passes use options and the target: firstPassOfAPlan
      &separateDocuments, // packed in one sample
      &insertAdapters,    // beside frozen weights
      &evenPads,          // where the target's library supports nothing else
      &keyRandomness,     // masks that do not depend on the number of ranks
      &alignShapes,       // elementwise chains that can become one loop
      &assignUnits,       // an attribute that derivatives inherit
      &insertCasts,       // 16-bit compute types
      &narrowFrozen,      // 16-bit storage of what does not train
      &fuseBiases,        // the matmul adds it, before it rounds
      // train: one step, every parameter unsharded
      &appendLoss,
      &chunkLoss,             // logits of a few positions at a time
      &expandBatchStatistics, // statistics of batch norms in training mode
      &differentiate,
      &mergeLossGradient,   // terms and derivatives from the same logits
      &expandBatchNorm,     // the norm itself is elementwise
      &promoteGradients,    // no gradient is rounded before it is reduced
      &combineGradients,    // slices of q, k and v concatenated
      &splitTableGradients, // lookups apart from the other uses of tied tables
      &splitSamples,        // with --deterministic world: every sum over samples is one tree
      &appendOptimizer,
      &makeTables,      // what depends on nothing, once at start
      &selectAttention, // in the train stage, so that the checker compares both modules with it
      &selectSaved,     // values kept for backward, and values recomputed
      // sharded: which rank owns which part
      &shardState,
      &insertRecompute, // before fusion, which treats it like forward
      &fuseResiduals,   // sums fused into norms
      &fuseElementwise, // before frees exist: a fused node reads its operands at the position of its last member
      &sinkGathers,
      &hoistReduceScatters,
      // async: the schedule
      &splitCollectives,
      &scheduleComm,
      &hoistAccumulation, // adds a micro-step's gradients when they are available
      &overlapOptimizer,  // runs a unit's optimizer when its gradients are available
      &prefetchAcrossSteps,
      &insertOffload,  // after all other nodes have their positions
      &scheduleCopies, // overlaps each copy with a region
      &insertFrees,
      // planned: memory offsets
      &planMemory,
      &assignEvents,
      &outlineRepeatedUnits,
  };
  return passes;
}

const Pass &firstPassOfAPlan() { return separateDocuments; }

const Pass *findPass(llvm::StringRef name) {
  if (name == crash.name)
    return &crash;
  for (const Pass *pass : pipeline())
    if (pass->name == name)
      return pass;
  return nullptr;
}

} // namespace fsdpc
