#include "passes/support/section_runs.h"

namespace fsdpc {

llvm::DenseMap<const Node *, size_t> sectionRuns(const Function &function) {
  llvm::DenseMap<const Node *, size_t> runs;
  size_t run = 0;
  const Node *previous = nullptr;
  for (const Node *node : function) {
    if (previous && !(previous->section == node->section))
      ++run;
    previous = node;
    runs[node] = run;
  }
  return runs;
}

} // namespace fsdpc
