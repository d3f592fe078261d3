// The parts of forward that backward could compute again.
#pragma once

#include "ir/module.h"

namespace fsdpc {

/// One run of forward of one unit (support/section_runs.h), with what a choice must know of its nodes.
struct ForwardRun {
  std::vector<Node *> nodes; ///< in program order
  /// Per node: it has no effect but its results, nobody but the run and its unit's derivatives reads them, and it reads
  /// no parameter that would have to be gathered once more for it. Constants and states are there in any case.
  std::vector<bool> mayRecompute;
  std::vector<bool> readByBackward; ///< per node: by a derivative
  bool mayOffload = false; ///< what stays until backward may do so in the host's memory; false from forwardRuns

  Unit &unitOf(Module &module) const { return module.units[nodes.front()->section.unit]; }
};

/// All but the last, since backward begins right behind it. Requires: train stage.
std::vector<ForwardRun> forwardRuns(Function &step);

} // namespace fsdpc
