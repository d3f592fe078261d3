// The schedule checker: checks that the planned module computes the values of the train module, in the memory and order
// that it plans.
//
// It reads the two modules and nothing else. It shares no code with the passes it checks (it includes ir/ only), so an
// error in a pass's live ranges, layouts or ordering cannot repeat itself here. README.md describes the model of
// streams and memory.
//
// An error is one sentence that names the function, the unit and the violation, followed by the node's text. It begins
// with a label:
//   (S1) a future is not waited for exactly once, or a value is used before it is available
//   (S2) memory is used after its free, freed twice, or never freed
//   (S3) a gradient contribution is missing or counted more than once
//   (S4) a value differs from the train module's
//   (S5) memory is reused without an edge that orders the reuse after the last use
//   (S6) places overlap, are outside their arena, or are in the wrong space
//   (S7) ranks could issue different collectives, or in another order
//   (S8) a parameter's elements are not at their position in the segment
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
/// equal their source, fused bodies equal their steps. Nothing is reordered, so values with equal terms are bitwise
/// identical. Requires: the stages train and planned.
llvm::Error checkAgainstTrain(const Module &train, const Module &planned);

} // namespace fsdpc
