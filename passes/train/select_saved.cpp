#include "passes/passes.h"
#include "passes/train/saved_budget.h"

namespace fsdpc {

namespace {

bool isReadByMarked(const Node &node) {
  for (unsigned i = 0; i < node.resultCount(); ++i)
    for (const Use *use = node.result(i)->uses(); use; use = use->next())
      if (use->user()->schedule.saving == Saving::recompute)
        return true;
  return false;
}

/// A sum of expensive results that nothing else reads, as of a layer and its adapter: one value to keep instead of two.
bool joinsExpensive(const Node &node) {
  return node.op() == Op::add && llvm::all_of(node.operands(), [](const Value *operand) {
           const Use *use = operand->uses();
           return operand->definer() && isExpensive(*operand->definer()) && !use->next();
         });
}

/// Walks backwards, so that the readers of a value are decided before it.
void markAll(const ForwardRegion &run, bool keepsExpensive) {
  for (size_t i = run.nodes.size(); i-- > 0;) {
    Node &node = *run.nodes[i];
    bool isWanted = run.mayRecompute[i] && !(keepsExpensive && (isExpensive(node) || joinsExpensive(node)));
    if (isWanted && (run.readByBackward[i] || isReadByMarked(node)))
      node.schedule.saving = Saving::recompute;
  }
}

bool mayOffload(const Unit &unit, const PipelineOptions &options) {
  return unit.choices.offloadActivations.value_or(options.offloadsActivations);
}

void markWithinBudget(Module &module, llvm::ArrayRef<ForwardRegion> runs, const PassContext &context) {
  PointsBySignature points;
  const std::vector<const SavedPoint *> choices =
      choosePoints(runs, context.target, context.options.activationMemoryBudget, points);
  for (size_t i = 0; i < runs.size(); ++i)
    for (size_t k = 0; k < runs[i].nodes.size(); ++k)
      if (choices[i]->recomputed[k])
        runs[i].nodes[k]->schedule.saving = Saving::recompute;
  if (llvm::none_of(runs, [](const ForwardRegion &run) { return run.mayOffload; }))
    return;
  for (const ForwardRegion &run : runs)
    run.unitOf(module).choices.offloadActivations = false;
  for (size_t i = 0; i < runs.size(); ++i)
    if (choices[i]->isOffloaded) // a unit that is entered again has several regions
      runs[i].unitOf(module).choices.offloadActivations = true;
}

llvm::Error run(Module &module, const PassContext &context) {
  std::vector<ForwardRegion> runs = forwardRegions(*module.function(FunctionKind::microStep)), budgeted;
  for (ForwardRegion &run : runs) {
    const Unit &unit = run.unitOf(module);
    const ActivationCheckpointing mode = unit.choices.activationCheckpointing;
    // The last region has hardly any time between its forward and its backward.
    run.mayOffload = &run != &runs.back() && mayOffload(unit, context.options);
    if (mode == ActivationCheckpointing::budget)
      budgeted.push_back(std::move(run));
    else if (mode != ActivationCheckpointing::none)
      markAll(run, mode == ActivationCheckpointing::selective);
  }
  if (!budgeted.empty())
    markWithinBudget(module, budgeted, context);
  return llvm::Error::success();
}

} // namespace

const Pass selectSaved = {"select_saved", Stage::train, Stage::train, /*optional=*/true, run, FunctionKind::microStep};

} // namespace fsdpc
