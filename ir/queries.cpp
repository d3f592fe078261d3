#include "ir/queries.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

State *stateOf(const Node &node) { return node.function()->module()->state(node.get<StateAttributes>().state.name); }

State *stateReadBy(const Value &value) {
  const Node *definer = value.definer();
  return definer && definer->op() == Op::read ? stateOf(*definer) : nullptr;
}

Node *waitOf(const Node &start) {
  const Value *future = start.result();
  assert(future->type().isFuture() && future->hasOneUse() && "a future is waited for once");
  return future->uses()->user();
}

Value *aliasRoot(Value *value) {
  while (value->definer() && infoOf(*value->definer()).has(aliasesOperand))
    value = value->definer()->operand(0);
  return value;
}

bool isPermanentConstant(const Value &value) {
  return value.definer() && value.definer()->op() == Op::constant && value.function()->kind() != FunctionKind::start;
}

std::optional<NamedAxis> axisNamedBy(const Node &node) {
  if (node.op() == Op::gatherRows || node.op() == Op::scatterRows)
    return NamedAxis{node.get<RowsAttributes>().over.name, node.get<RowsAttributes>().ranks};
  if (node.op() != Op::batchSum && (infoOf(node).has(collective) || node.op() == Op::takeShard))
    return NamedAxis{node.get<CollectiveAttributes>().over.name, node.get<CollectiveAttributes>().ranks};
  return std::nullopt;
}

bool containsOp(const Function &function, Op op) {
  for (const Node *node : function)
    if (node->op() == op)
      return true;
  return false;
}

Node *laterOf(Node *a, Node *b) { return !a || (b && a->isBefore(b)) ? b : a; }

} // namespace fsdpc
