#include "ir/carried.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

llvm::SmallVector<Function *, 8> inCallOrder(const Module &module) {
  llvm::SmallVector<Function *, 8> functions;
  for (const std::unique_ptr<Function> &function : module.functions)
    functions.push_back(function.get());
  llvm::stable_sort(functions, [](const Function *a, const Function *b) { return a->kind() < b->kind(); });
  return functions;
}

bool waitsForStepBefore(const Node &wait, const Node &start) {
  return !wait.operand(0)->definer() && start.function()->kind() >= wait.function()->kind();
}

llvm::StringRef CarriedOver::state() const { return access->get<StateAttributes>().state.name; }

namespace {

Node *accessOf(const Value &value) {
  if (value.definer() && value.definer()->op() == Op::read)
    return value.definer();
  for (const Use *use = value.uses(); use; use = use->next())
    if (use->user()->op() == Op::write)
      return use->user();
  return nullptr;
}

} // namespace

std::vector<CarriedOver> carriedOverSteps(const Module &module) {
  std::vector<CarriedOver> found;
  llvm::StringMap<Value *> returned;
  for (Function *function : inCallOrder(module)) {
    for (const Argument &argument : function->arguments())
      if (argument.kind == ArgumentKind::carry && !returned.contains(argument.name))
        found.push_back({&argument, function, nullptr});
    if (const Node *ret = function->returnNode(); ret && function->kind() <= FunctionKind::update)
      for (unsigned i = 0; i < ret->operandCount(); ++i)
        returned[ret->get<ReturnAttributes>().names[i]] = ret->operand(i);
  }
  for (CarriedOver &carried : found) {
    carried.future = returned.lookup(carried.argument->name);
    Node *start = carried.future ? carried.future->definer() : nullptr;
    carried.access = start && start->op() == Op::allGatherStart ? accessOf(*start->operand(0)) : nullptr;
    carried.start = carried.access ? start : nullptr;
  }
  return found;
}

} // namespace fsdpc
