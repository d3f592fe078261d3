// The parts of forward that backward can recompute.
#pragma once

#include "ir/module.h"

namespace fsdpc {

/// One region of forward of one unit (support/section_regions.h), with the properties of its nodes that the choice
/// needs.
struct ForwardRegion {
  std::vector<Node *> nodes; ///< in program order
  /// Per node: it has no side effects, only the region and its unit's derivatives read its results, and it reads no
  /// parameter that would have to be gathered again for it. Constants and states are always available.
  std::vector<bool> mayRecompute;
  std::vector<bool> readByBackward; ///< per node: by a derivative
  bool mayOffload = false;          ///< values kept until backward may be in host memory; false from forwardRegions

  Unit &unitOf(Module &module) const { return module.units[nodes.front()->section.unit]; }
};

/// All regions but the last, since backward begins right after it. Requires: train stage.
std::vector<ForwardRegion> forwardRegions(Function &step);

} // namespace fsdpc
