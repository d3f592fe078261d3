// Moves the optimizer from `update` into `micro_step`: each node to the first position where its operands are available
// and the memory that it overwrites has no more readers.
#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "passes/analysis/state_readers.h"
#include "passes/passes.h"
#include "passes/schedule/collective_ids.h"
#include "passes/support/clone.h"
#include "passes/support/optimizer_layout.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

namespace {

class UpdateMover {
public:
  UpdateMover(Module &module, Function &step, Function &update)
      : module(module), step(step), update(update), readers(lastReaders(step)) {}

  void run() {
    for (const Argument &argument : update.arguments())
      values[argument.value.get()] = resultValue(step, argument.name);
    for (Node *node : update)
      if (node->op() != Op::ret)
        place(*node);
    for (Node *read : reads)
      if (Node *user = firstUser(*read->result()))
        standBefore(*read, *user);
    clear();
    stashGradients();
  }

private:
  void place(Node &node) {
    Node *behind = nullptr;
    llvm::SmallVector<Value *, 12> operands;
    for (Value *operand : node.operands()) {
      operands.push_back(values.lookup(operand));
      Node *definer = operands.back()->definer();
      if (definer && definer->op() != Op::read)
        behind = laterOf(behind, definer);
      if (definer && definer->op() == Op::read && infoOf(node).has(inPlace))
        behind = laterOf(behind, readers.lookup(definer->get<StateAttributes>().state.name));
    }
    for (unsigned i = 0; i < node.resultCount(); ++i)
      for (const Use *use = node.result(i)->uses(); use; use = use->next())
        if (const Node *write = writeOfDelivery(*use->user()))
          behind = laterOf(behind, readers.lookup(write->get<StateAttributes>().state.name));
    Node *copy = copyAfter(isAtTheEnd(node) ? nullptr : behind, node, operands);
    for (unsigned i = 0; i < node.resultCount(); ++i) {
      copy->result(i)->setName(node.result(i)->name());
      values[node.result(i)] = copy->result(i);
    }
    if (node.op() == Op::read)
      reads.push_back(copy);
  }

  /// Null: at the end. Nodes placed after the same node keep their order; reductions that start there start first.
  Node *copyAfter(Node *anchor, const Node &node, llvm::ArrayRef<Value *> operands) {
    Builder builder(step, step.returnNode());
    if (!anchor)
      return builder.clone(node, operands);
    Node *&last = lastAfter[anchor];
    if (!last)
      for (last = anchor; infoOf(*last->next()).has(startsTransfer);)
        last = last->next();
    builder.setInsertionPointAfter(last);
    return last = builder.clone(node, operands);
  }

  /// The write of the state that a gather delivers to; null for other nodes. A gather waits only for its operand, not
  /// for other compute nodes, so the operand must be computed after the last reader of that state.
  static const Node *writeOfDelivery(const Node &node) {
    if (node.op() != Op::allGatherStart)
      return nullptr;
    const Node *wait = waitOf(node);
    const Use *use = wait->result()->uses();
    return use && use->user()->op() == Op::write ? use->user() : nullptr;
  }

  /// No node reads a replica before the next step, so its wait is not urgent. Host compute would delay backward.
  bool isAtTheEnd(const Node &node) const {
    const Node *made = node.op() == Op::write ? node.operand(0)->definer() : &node;
    return made && (made->op() == Op::wait || updatesOnHost(*made));
  }

  bool updatesOnHost(const Node &node) const {
    const State *state = infoOf(node).has(inPlace) ? stateReadBy(*node.operand(0)) : nullptr;
    return state && state->onHost;
  }

  static void standBefore(Node &node, Node &user) {
    node.moveBefore(&user);
    node.section = user.section;
    if (node.unit < 0)
      node.unit = user.unit;
  }

  void clear() {
    for (Node *node : update)
      if (node->op() != Op::ret)
        node->dropOperands();
    for (Node *node : update)
      if (node->op() != Op::ret)
        node->erase();
  }

  /// Gradients that update no longer uses are stashed when they are available, in case they are tapped. They are no
  /// longer returned.
  void stashGradients() {
    llvm::StringSet<> stashed;
    const Node &ret = *step.returnNode();
    for (unsigned i = 0; i < ret.operandCount(); ++i) {
      llvm::StringRef name = ret.get<ReturnAttributes>().names[i], segment = name;
      Node *reader = segment.consume_front(names::gradientPrefix) ? readerOf(*ret.operand(i)) : nullptr;
      if (!reader)
        continue;
      Builder builder(step);
      builder.setInsertionPointAfter(ret.operand(i)->definer());
      builder.inherit(*reader);
      builder.setSection(ret.operand(i)->definer()->section);
      StateAttributes attributes{{segment.str()}, {}, DType::f32};
      builder.create(Op::stash, {ret.operand(i)}, std::move(attributes))->schedule.stream = Stream::compute;
      stashed.insert(name);
    }
    eraseResults(step, [&](llvm::StringRef name) { return stashed.contains(name); });
    eraseUnusedArguments(update);
    if (Function *tap = module.function(FunctionKind::tapGradients))
      unstash(*tap, stashed);
  }

  /// The node that reads the gradient for its optimizer: the optimizer itself, or the node that promotes the gradient
  /// first.
  static Node *readerOf(const Value &gradient) {
    for (Use *use = gradient.uses(); use; use = use->next()) {
      Node *user = use->user();
      bool promotes = user->op() == Op::cast || (user->op() == Op::fused && user->operandCount() == 1);
      const Use *next = promotes && user->resultCount() == 1 ? user->result()->uses() : nullptr;
      if (infoOf(*user).has(inPlace) || (next && infoOf(*next->user()).has(inPlace)))
        return user;
    }
    return nullptr;
  }

  /// Replaces the step's results in the tap.
  static void unstash(Function &tap, const llvm::StringSet<> &stashed) {
    for (const Argument &argument : tap.arguments()) {
      Node *user = stashed.contains(argument.name) ? firstUser(*argument.value) : nullptr;
      if (!user)
        continue;
      Builder builder(tap, user);
      builder.inherit(*user);
      const Type &type = argument.value->type();
      StateAttributes attributes{
          {argument.name.substr(names::gradientPrefix.size())}, Shape(type.shape()), type.dtype()};
      Node *node = builder.create(Op::unstash, {}, std::move(attributes));
      node->schedule.stream = Stream::compute;
      node->result()->setName(argument.name);
      argument.value->replaceAllUsesWith(node->result());
    }
    eraseUnusedArguments(tap);
  }

  Module &module;
  Function &step;
  Function &update;
  ValueMap values;
  llvm::DenseMap<Node *, Node *> lastAfter; ///< node of the step -> the last node placed after it
  const llvm::StringMap<Node *> readers;    ///< of the step
  std::vector<Node *> reads;
};

/// True if every optimizer waits for all gradients.
bool needsAllGradients(const Function &update) {
  for (const Node *node : update)
    if (node->op() == Op::clipNorm)
      return true;
  return false;
}

llvm::Error run(Module &module, const PassContext &) {
  Function *step = module.function(FunctionKind::microStep), *update = module.function(FunctionKind::update);
  bool isAlone = step && update && module.microSteps == 1 && !needsAllGradients(*update);
  if (isAlone && module.decisions.overlapComm)
    UpdateMover(module, *step, *update).run();
  numberCollectives(module);
  return llvm::Error::success();
}

} // namespace

const Pass overlapOptimizer = {"overlap_optimizer", Stage::async, Stage::async, true, run};

} // namespace fsdpc
