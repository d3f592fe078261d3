// Moves each addition to an accumulator up to its summand.
#include "ir/ops/attributes.h"
#include "passes/passes.h"

namespace fsdpc {

namespace {

/// An addition to a state, and its operands.
struct Addition {
  Node *read = nullptr, *add = nullptr, *write = nullptr;
  Node *summand = nullptr; ///< computes the summand
};

bool readsState(const Value &value, const std::string &state) {
  const Node *read = value.definer();
  return read && read->op() == Op::read && read->get<StateAttributes>().state.name == state;
}

/// write @s add(read @s, summand), where none of the values has another use. `add` is null if the write does not match.
Addition additionOf(Node &write) {
  const std::string &state = write.get<StateAttributes>().state.name;
  Node *add = write.operand(0)->definer();
  if (write.function()->module()->state(state)->role != StateRole::accumulator || !add || add->resultCount() != 1 ||
      add->operandCount() != 2 || !add->result()->hasOneUse())
    return {};
  for (unsigned i = 0; i < 2; ++i) {
    Value *own = add->operand(i), *other = add->operand(1 - i);
    if (readsState(*own, state) && own->hasOneUse() && other->definer() && other->definer()->op() != Op::read)
      return {own->definer(), add, &write, other->definer()};
  }
  return {};
}

/// Reductions that start when the summand is available start first.
void advance(const Addition &addition) {
  Node *last = addition.summand;
  while (infoOf(*last->next()).has(startsTransfer))
    last = last->next();
  for (Node *node : {addition.read, addition.add, addition.write}) {
    node->moveAfter(last);
    node->section = addition.summand->section;
    last = node;
  }
}

llvm::Error run(Module &module, const PassContext &) {
  if (module.microSteps == 1)
    return llvm::Error::success();
  for (const std::unique_ptr<Function> &function : module.functions) {
    std::vector<Addition> additions;
    for (Node *node : *function)
      if (node->op() == Op::write)
        if (Addition addition = additionOf(*node); addition.add)
          additions.push_back(addition);
    for (const Addition &addition : additions)
      advance(addition);
  }
  return llvm::Error::success();
}

} // namespace

const Pass hoistAccumulation = {"hoist_accumulation", Stage::async, Stage::async, true, run};

} // namespace fsdpc
