#include "passes/passes.h"
#include "passes/train/saved_budget.h"

namespace fsdpc {

namespace {

bool isReadByMarked(const Node &node) {
  for (unsigned i = 0; i < node.resultCount(); ++i)
    for (const Use *use = node.result(i)->uses(); use; use = use->next())
      if (use->user()->saving == Saving::recompute)
        return true;
  return false;
}

/// From the end, so that the readers of a value are decided before it.
void markAll(const ForwardRun &run, bool keepsExpensive) {
  for (size_t i = run.nodes.size(); i-- > 0;) {
    Node &node = *run.nodes[i];
    bool isWanted = run.mayRecompute[i] && !(keepsExpensive && isExpensive(node));
    if (isWanted && (run.readByBackward[i] || isReadByMarked(node)))
      node.saving = Saving::recompute;
  }
}

void markWithinBudget(llvm::ArrayRef<ForwardRun> runs, const PassContext &context) {
  PointsBySignature points;
  const std::vector<const SavedPoint *> choices =
      choosePoints(runs, context.target, context.options.activationMemoryBudget, points);
  for (size_t i = 0; i < runs.size(); ++i)
    for (size_t k = 0; k < runs[i].nodes.size(); ++k)
      if (choices[i]->recomputed[k])
        runs[i].nodes[k]->saving = Saving::recompute;
}

llvm::Error run(Module &module, const PassContext &context) {
  std::vector<ForwardRun> budgeted;
  for (ForwardRun &run : forwardRuns(*module.function(FunctionKind::microStep))) {
    llvm::StringRef mode = module.units[run.nodes.front()->section.unit].activationCheckpointing;
    if (mode == "budget")
      budgeted.push_back(std::move(run));
    else if (mode != "none")
      markAll(run, mode == "selective");
  }
  if (!budgeted.empty())
    markWithinBudget(budgeted, context);
  return llvm::Error::success();
}

} // namespace

const Pass selectSaved = {"select_saved", Stage::train, Stage::train, /*optional=*/true, run};

} // namespace fsdpc
