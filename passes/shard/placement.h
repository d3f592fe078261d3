// Who holds what: the table of strategies. Passes ask here and know no strategy by name.
#pragma once

#include "ir/module.h"
#include "ir/ops/attributes.h"
#include "passes/options.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

/// Over which ranks a unit's parameters, and with them gradients and optimizer state, are split.
enum class Split : uint8_t {
  none,  ///< whole on every rank
  shard, ///< within a replica: mesh axis `shard`
  all,   ///< over every rank
};

/// How long the whole copy of a split unit lives.
enum class WholeCopy : uint8_t {
  perUse,            ///< gathered before a unit computes, freed behind it
  forwardToBackward, ///< from the first use in forward to the last in backward
  always,            ///< a state of its own, refreshed by the update
};

struct Placement {
  Strategy strategy;
  Split split;
  WholeCopy copy;
};

/// The rows, in the order in which they hold less and less memory.
///
/// Gradients follow from `split`: they are reduce-scattered over the ranks a unit is split over and all-reduced over
/// the others (Rajbhandari et al., ZeRO, arXiv 1910.02054; Zhang et al., MiCS, arXiv 2205.00119 for the hybrid rows).
llvm::ArrayRef<Placement> placements();

/// The row of a unit's strategy, which must be one; reshard_after_forward(never) holds the whole copy until backward, a
/// unit that keeps its parameters over micro-steps always.
Placement placementOf(const Unit &unit);

/// With several micro-steps: gradients are summed whole and reduced once, in update; the whole copy is gathered once,
/// by update, and stays. Torch calls them set_requires_gradient_sync(False) and set_reshard_after_backward(False). Sums
/// over replicas wait for update in any case: what a rank holds meanwhile is no larger for it.
bool keepsGradients(const Unit &unit);
bool keepsParameters(const Unit &unit);
/// Is the unit's placement another one than without this choice?
bool changesAnything(Accumulation accumulation, const Unit &unit);

/// The size of the smaller group that keeps the unit's parameters between forward and backward
/// (reshard_after_forward(k)); 0: none.
int64_t reshardSizeOf(const Unit &unit);

/// The axes that the units' placements need. `shard` is all ranks where no unit splits within a replica; else it is the
/// ranks of a replica, `replicate` the ranks that hold the same shard, and `world` everybody. `reshard`, or
/// `reshard_<k>` where there are several, is a smaller group of k neighbours.
/// Errors: degrees that do not multiply to the world size, group sizes that do not divide.
llvm::Expected<std::vector<MeshAxis>> meshFor(const Module &module, const PipelineOptions &options);

/// Names of the axes of `module.mesh`; empty where the axis would have one rank.
std::string axisOfAll(const Module &module);
std::string axisOf(const Module &module, Split split);
std::string axisOfReplicas(const Module &module, Split split); ///< the ranks that are left to sum over
std::string axisOfReshard(const Module &module, const Unit &unit);

/// A collective over an axis of the mesh, not numbered yet.
CollectiveAttributes overAxis(const Module &module, llvm::StringRef axis);

} // namespace fsdpc
