// Starts the first gather of a step in the previous step, after the update of its operand. The rest of that step and
// the program's work between steps overlap with it.
#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "ir/reserved_names.h"
#include "passes/passes.h"
#include "passes/schedule/collective_ids.h"

namespace fsdpc {

namespace {

class GatherCarrier {
public:
  GatherCarrier(Module &module, Function &step, Function &update) : module(module), step(step), update(update) {}

  void run() {
    for (Node *node : step)
      if (node->op() == Op::allGatherStart && stateReadBy(*node->operand(0))) {
        if (canBeCarried(*node))
          carry(*node);
        return;
      }
  }

private:
  /// One buffer serves both steps, so the first must free it. A copy from the host would have to be carried as well.
  bool canBeCarried(const Node &start) const {
    const State *state = stateReadBy(*start.operand(0));
    return module.prefetchesForward(start.unit) && state && !state->onHost && isFreed(*waitOf(start));
  }

  static bool isFreed(const Node &wait) {
    for (Use *use = wait.result()->uses(); use; use = use->next())
      if (use->user()->op() == Op::free)
        return true;
    return false;
  }

  /// In `update`, even where the state is written earlier: together with the gathers of taps in between, one unit too
  /// many would be gathered.
  void carry(Node &start) {
    Node *read = start.operand(0)->definer();
    std::string name = names::nextPrefix.str() + read->get<StateAttributes>().state.name;
    Value *argument = step.addArgument(ArgumentKind::carry, name, start.result()->type());
    Node *next = startAfterUpdate(start, *read);
    next->result()->setName(start.result()->name());
    addResult(update, name, next->result());
    waitOf(start)->setOperand(0, argument);
    start.erase();
    if (!read->result()->uses())
      read->erase();
  }

  Node *startAfterUpdate(const Node &start, const Node &read) {
    Builder builder(update, update.front());
    if (Node *write = lastWriteOf(read.get<StateAttributes>().state.name)) {
      builder.setInsertionPointAfter(write);
      return inSection(builder.clone(start, {write->operand(0)}), write->section);
    }
    Section section{start.unit, Phase::update};
    Node *shard = inSection(builder.clone(read, {}), section);
    shard->result()->setName(read.result()->name());
    return inSection(builder.clone(start, {shard->result()}), section);
  }

  static Node *inSection(Node *node, Section section) {
    node->section = section;
    return node;
  }

  Node *lastWriteOf(llvm::StringRef state) const {
    Node *last = nullptr;
    for (Node *node : update)
      if (node->op() == Op::write && node->get<StateAttributes>().state.name == state)
        last = node;
    return last;
  }

  static void addResult(Function &function, llvm::StringRef name, Value *value) {
    Node *old = function.returnNode();
    std::vector<std::string> names = old->get<ReturnAttributes>().names;
    llvm::SmallVector<Value *, 4> results = old->operands();
    names.push_back(name.str());
    results.push_back(value);
    old->erase();
    Builder(function).ret(results, names);
  }

  Module &module;
  Function &step, &update;
};

llvm::Error run(Module &module, const PassContext &) {
  Function *step = module.function(FunctionKind::microStep), *update = module.function(FunctionKind::update);
  if (step && update && module.decisions.overlapComm && module.microSteps == 1)
    GatherCarrier(module, *step, *update).run();
  numberCollectives(module);
  return llvm::Error::success();
}

} // namespace

const Pass prefetchAcrossSteps = {"prefetch_across_steps", Stage::async, Stage::async, true, run};

} // namespace fsdpc
