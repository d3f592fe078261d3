// The schedule checker: does the planned module compute what the train module says, in the memory and order it plans?
//
// It reads the two modules and nothing else. It shares no code with the passes it checks (it includes ir/ only), so a
// mistake in a pass's idea of live ranges, layouts or ordering cannot repeat itself here. README.md tells the model of
// streams and memory.
//
// Errors are one sentence that names the function, the unit and what is wrong, then the node's text, and begin with a
// label:
//   (S1) a future is not waited for exactly once, or something is used before it is there
//   (S2) memory is used after its free, freed twice, or never freed
//   (S3) a gradient contribution is missing or counted more than once
//   (S4) a value differs from what the train module computes
//   (S5) memory is reused without an edge that orders the reuse after the last use
//   (S6) places overlap, or lie outside their arena or in the wrong space
//   (S7) ranks could issue different collectives, or in another order
//   (S8) a parameter's elements are not where its segment says
//   (S9) a value is read from memory that holds another version
#pragma once

#include "ir/module.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

/// Checks of the planned module alone: (S1), (S2), (S5), (S6), (S7), (S9). Requires: stage planned; verify() succeeds
/// on everything but memory (structure, types, references). Time n log n in the nodes.
llvm::Error checkPlanned(const Module &planned);

/// Translation validation: every result, tap and new state of every function of `planned` is the same value as in
/// `train`: (S3), (S4), (S8), (S9). Equality is that of terms: gather(shard p) = p, wait(start x) = x, copies and views
/// are what they show, fused bodies are their steps; nothing is reordered, so equal terms have equal bits. Requires:
/// the stages train and planned.
llvm::Error checkAgainstTrain(const Module &train, const Module &planned);

} // namespace fsdpc
