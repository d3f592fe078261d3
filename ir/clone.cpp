#include "ir/clone.h"

#include "ir/builder.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc {

namespace {

using ValueMap = llvm::DenseMap<const Value *, Value *>;

/// Copies everything except operands, results and attributes.
void copyFields(const Node &from, Node &to) {
  to.section = from.section;
  to.unit = from.unit;
  to.schedule = from.schedule;
  to.source = from.source;
}

void copyNode(const Node &node, Builder &builder, ValueMap &copies) {
  llvm::SmallVector<Value *, 4> operands;
  for (const Value *operand : node.operands())
    operands.push_back(copies.lookup(operand));
  llvm::SmallVector<Type, 2> types;
  for (unsigned i = 0; i < node.resultCount(); ++i)
    types.push_back(node.result(i)->type());
  Node *copy =
      builder.createWithTypes(node.op(), operands, node.attributes() ? node.attributes()->clone() : nullptr, types);
  copyFields(node, *copy);
  for (const std::unique_ptr<Use> &token : node.afterTokens())
    copy->addAfter(copies.lookup(token->value()));
  for (unsigned i = 0; i < node.resultCount(); ++i) {
    copy->result(i)->setName(node.result(i)->name());
    copy->result(i)->place = node.result(i)->place;
    copies[node.result(i)] = copy->result(i);
  }
}

void copyFunction(const Function &function, Module &to) {
  Function *copy = to.addFunction(function.kind());
  ValueMap copies;
  for (const Argument &argument : function.arguments()) {
    Value *value = copy->addArgument(argument.kind, argument.name, argument.value->type());
    value->setName(argument.value->name());
    value->place = argument.value->place;
    copies[argument.value.get()] = value;
  }
  Builder builder(*copy);
  for (const Node *node : function)
    copyNode(*node, builder, copies);
}

} // namespace

std::unique_ptr<Module> clone(const Module &module) {
  auto copy = std::make_unique<Module>();
  copy->name = module.name;
  copy->stage = module.stage;
  copy->mesh = module.mesh;
  copy->microSteps = module.microSteps;
  copy->decisions = module.decisions;
  copy->units = module.units;
  copy->outlines = module.outlines;
  copy->classes = module.classes;
  copy->facts = module.facts;
  copy->parameters = module.parameters;
  copy->replaceStates(module.states);
  for (const std::unique_ptr<Function> &function : module.functions)
    copyFunction(*function, *copy);
  return copy;
}

} // namespace fsdpc
