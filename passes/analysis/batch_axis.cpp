#include "passes/analysis/batch_axis.h"

#include "ir/op.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

BatchAxis::BatchAxis(const Function &function) {
  for (const Argument &argument : function.arguments()) {
    const Type &type = argument.value->type();
    if (argument.kind == ArgumentKind::input && type.rank() > 0 && type.dim(0) > 0)
      facts[argument.value.get()] = {BatchFact::Kind::found, {0, type.dim(0), 1}};
  }
  for (const Node *node : function)
    visit(*node);
}

void BatchAxis::visit(const Node &node) {
  llvm::SmallVector<BatchFact, 4> operands;
  for (const Value *operand : node.operands())
    operands.push_back(facts.lookup(operand));
  if (llvm::all_of(operands, [](const BatchFact &fact) { return fact.kind == BatchFact::Kind::none; }))
    return;
  const BatchRule rule = infoOf(node).batch;
  for (unsigned i = 0; i < node.resultCount(); ++i) {
    BatchFact fact = rule ? rule(node, operands, i) : BatchFact{BatchFact::Kind::lost, {}};
    if (fact.kind != BatchFact::Kind::none)
      facts[node.result(i)] = fact;
  }
}

std::optional<BatchPosition> BatchAxis::of(const Value *value) const {
  auto fact = facts.find(value);
  if (fact == facts.end() || fact->second.kind != BatchFact::Kind::found)
    return std::nullopt;
  return fact->second.position;
}

} // namespace fsdpc
