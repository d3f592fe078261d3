#include "passes/support/section_runs.h"

namespace fsdpc {

namespace {

template <class Continues>
llvm::DenseMap<const Node *, size_t> numberRuns(const Function &function, Continues continues) {
  llvm::DenseMap<const Node *, size_t> runs;
  size_t run = 0;
  const Node *previous = nullptr;
  for (const Node *node : function) {
    if (previous && !continues(previous->section, node->section))
      ++run;
    previous = node;
    runs[node] = run;
  }
  return runs;
}

} // namespace

llvm::DenseMap<const Node *, size_t> sectionRuns(const Function &function) {
  return numberRuns(function, [](Section before, Section now) { return before == now; });
}

llvm::DenseMap<const Node *, size_t> unitRuns(const Function &function) {
  return numberRuns(function, [](Section before, Section now) {
    bool goesOn = before.phase == Phase::recompute && now.phase == Phase::backward && before.unit == now.unit;
    return before == now || goesOn;
  });
}

} // namespace fsdpc
