// The table of strategies: which ranks hold which part. Passes query this table and know no strategy by name.
#pragma once

#include "ir/module.h"
#include "ir/ops/attributes.h"
#include "passes/options.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

/// The ranks over which a unit's parameters, gradients and optimizer state are split.
enum class Split : uint8_t {
  none,  ///< unsharded on every rank
  shard, ///< within a replica: mesh axis `shard`
  all,   ///< over every rank
};

/// Lifetime of the unsharded copy of a split unit.
enum class UnshardedCopy : uint8_t {
  perUse,            ///< gathered before a unit computes, freed after it
  forwardToBackward, ///< from the first use in forward to the last in backward
  always,            ///< a separate state, refreshed by the update
};

struct Placement {
  Strategy strategy;
  Split split;
  UnshardedCopy copy;
};

/// The rows, ordered by decreasing memory.
///
/// Gradients follow from `split`: they are reduce-scattered over the ranks that a unit is split over and all-reduced
/// over the others (Rajbhandari et al., ZeRO, arXiv 1910.02054; Zhang et al., MiCS, arXiv 2205.00119 for the hybrid
/// rows).
llvm::ArrayRef<Placement> placements();

/// The row of a unit's strategy. Requires: the strategy has a row. reshard_after_forward(never) keeps the unsharded
/// copy until backward. A unit that keeps its parameters over micro-steps always keeps it.
Placement placementOf(const Unit &unit);

/// With several micro-steps: gradients are accumulated unsharded and reduced once, in update; the unsharded copy is
/// gathered once, by update, and stays. PyTorch calls these set_requires_gradient_sync(False) and
/// set_reshard_after_backward(False). Sums over replicas are delayed until update in any case, since delaying them
/// needs no extra memory.
bool keepsGradients(const Unit &unit);
bool keepsParameters(const Unit &unit);
/// True if the unit's placement differs from the one without this choice.
bool changesAnything(Accumulation accumulation, const Unit &unit);

/// The size of the smaller group that keeps the unit's parameters between forward and backward
/// (reshard_after_forward(k)); 0 if there is none.
int64_t reshardSizeOf(const Unit &unit);

/// The axes that the units' placements need. Where no unit splits within a replica, `shard` contains all ranks.
/// Otherwise `shard` contains the ranks of a replica, `replicate` the ranks that hold the same shard, and `world` all
/// ranks. `reshard`, or `reshard_<k>` if there are several, is a smaller group of k neighbours. Errors: degrees that do
/// not multiply to the world size, group sizes that do not divide.
llvm::Expected<std::vector<MeshAxis>> meshFor(const Module &module, const PipelineOptions &options);

/// Names of the axes of `module.mesh`; empty where the axis would have one rank.
std::string axisOfAll(const Module &module);
std::string axisOf(const Module &module, Split split);
std::string axisOfReplicas(const Module &module, Split split); ///< the remaining ranks to sum over
std::string axisOfReshard(const Module &module, const Unit &unit);

/// A collective over an axis of the mesh. It has no id yet.
CollectiveAttributes overAxis(const Module &module, llvm::StringRef axis);

} // namespace fsdpc
