#include "passes/pipeline.h"

#include "passes/passes.h"

namespace fsdpc {

// One line is one pass; one block ends in one stage. The runner verifies the module after every line.
llvm::ArrayRef<const Pass *> pipeline() {
  static const Pass *const passes[] = {
      // graph: what the model computes
      &foldConstants,
      &canonicalize,
      &eliminateCommon,
      &recognizePatterns, // norms, GELU, SiLU, rotary, attention: before autodiff
      &canonicalize,
      &eliminateDead,
      &initializeParameters, // how those start that the file has no values for
      // from here on passes ask for options and the target: firstPassOfAPlan
      &evenPads,      // where the target's library knows no others
      &keyRandomness, // masks that do not depend on the number of ranks
      &alignShapes,   // elementwise chains that can become one loop
      &assignUnits,   // an attribute that derivatives inherit
      &insertCasts,   // where 16 bits are computed in
      &fuseBiases,    // the product adds it, before it rounds
      // train: one step, every parameter at hand
      &appendLoss,
      &expandBatchStatistics, // what batch norms normalise with, and how running statistics move
      &differentiate,
      &expandBatchNorm,  // the norm itself is a loop
      &widenGradients,   // no gradient is rounded before it is reduced
      &combineGradients, // parts of q, k and v side by side
      &splitSamples,     // with --deterministic world: every sum over samples is one tree
      &appendOptimizer,
      &selectAttention, // which of it a library computes: here, so that the checker knows both sides to be equal
      &selectSaved,     // what backward finds, and what it computes again
      // sharded: who owns what
      &shardState,
      &insertRecompute, // before fusion, which treats it like what forward did
      &fuseResiduals,   // sums that norms add on the way
      &fuseElementwise, // before frees exist: a fused node reads its operands where its last member stood
      &sinkGathers,
      &hoistReduceScatters,
      // async: when things happen
      &splitCollectives,
      &scheduleComm,
      &advanceAccumulation, // gradients of a micro-step are added when they are there
      &advanceUpdates,      // a unit's optimizer runs when its gradients are there
      &carryFirstGather,
      &insertOffload,  // once everything has its place: copies fit in around it
      &scheduleCopies, // and take the time of a run
      &insertFrees,
      // planned: where things live
      &planMemory,
      &assignEvents,
      &outlineRepeatedUnits,
  };
  return passes;
}

const Pass &firstPassOfAPlan() { return evenPads; }

const Pass *findPass(llvm::StringRef name) {
  for (const Pass *pass : pipeline())
    if (pass->name == name)
      return pass;
  return nullptr;
}

} // namespace fsdpc
