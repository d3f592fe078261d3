// Faults of recomputation: backward reads another value than forward computed.
#include "ir/text/text.h"
#include "tests/mutation/mutators.h"
#include "tests/mutation/plan_edit.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc::mutation {

namespace {

using What = std::optional<std::string>;

/// A node that recomputes a value.
std::optional<Node *> someRecomputed(const Module &module, Random &random) {
  return random.pick(nodesWhere(module, [](const Node &node) {
    return node.section.phase == Phase::recompute && node.resultCount() > 0 && node.operandCount() > 0 &&
           hasBytes(*node.result()) && !infoOf(node).has(aliasesOperand) && node.op() != Op::wait && !isStart(node);
  }));
}

/// A node of forward that may have been the original.
std::optional<Node *> someOriginal(const Module &module, const Node &copy, Random &random) {
  return random.pick(nodesWhere(module, [&](const Node &node) {
    return node.section.phase == Phase::forward && node.section.unit == copy.section.unit && node.op() == copy.op() &&
           node.operandCount() == copy.operandCount() && node.resultCount() == copy.resultCount() &&
           node.result()->type() == copy.result()->type() && node.function() == copy.function();
  }));
}

What readAnother(const Module &module, Node &copy, Random &random) {
  std::vector<unsigned> indices;
  for (unsigned i = 0; i < copy.operandCount(); ++i)
    if (hasBytes(*copy.operand(i)))
      indices.push_back(i);
  std::optional<unsigned> index = random.pick(indices);
  std::vector<Value *> others;
  for (Value *value : valuesOf(*copy.function()))
    if (index && value != copy.operand(*index) && value->type() == copy.operand(*index)->type() && value->definer() &&
        value->definer()->isBefore(&copy))
      others.push_back(value);
  std::optional<Value *> other = random.pick(others);
  if (!other)
    return std::nullopt;
  copy.setOperand(*index, *other);
  return "reads something else: " + toText(copy);
}

/// Reads the operand of the original in forward, whose memory may hold another value by now.
What readAsForward(const Module &module, Node &copy, Random &random) {
  std::optional<Node *> original = someOriginal(module, copy, random);
  for (unsigned i = 0; original && i < copy.operandCount(); ++i)
    if (copy.operand(i) != (*original)->operand(i) && copy.operand(i)->type() == (*original)->operand(i)->type()) {
      copy.setOperand(i, (*original)->operand(i));
      return "reads what forward read: " + toText(copy);
    }
  return std::nullopt;
}

What leaveOut(const Module &module, Node &copy, Random &random) {
  std::optional<Node *> original = someOriginal(module, copy, random);
  std::vector<Node *> frees = nodesWhere(
      module, [&](const Node &node) { return node.op() == Op::free && node.operand(0)->definer() == &copy; });
  bool isAwaited = llvm::any_of(frees, [](Node *free) { return free->result()->hasUses(); });
  if (!original || isAwaited)
    return std::nullopt;
  std::string what = toText(copy);
  for (Node *free : frees)
    free->erase();
  for (unsigned i = 0; i < copy.resultCount(); ++i)
    copy.result(i)->replaceAllUsesWith((*original)->result(i));
  copy.erase();
  return "read from forward: " + what;
}

What applyTwice(Node &copy) {
  if (copy.resultCount() != 1 || copy.operand(0)->type() != copy.result()->type())
    return std::nullopt;
  llvm::SmallVector<Value *, 8> operands(copy.operands());
  operands[0] = copy.result();
  Node *again =
      insertCompute(copy.op(), operands, copy.attributes() ? copy.attributes()->clone() : nullptr, copy, copy.next());
  again->result()->place = copy.result()->place;
  again->schedule.workspace = copy.schedule.workspace;
  again->schedule.workspaceBytes = copy.schedule.workspaceBytes;
  replaceUsesAfter(*copy.result(), *again->result(), *again);
  return "twice: " + toText(copy);
}

} // namespace

What recomputeWrongly(Module &module, Random &random) {
  std::optional<Node *> copy = someRecomputed(module, random);
  if (!copy)
    return std::nullopt;
  switch (random.below(4)) {
  case 0: return readAnother(module, **copy, random);
  case 1: return readAsForward(module, **copy, random);
  case 2: return leaveOut(module, **copy, random);
  default: return applyTwice(**copy);
  }
}

} // namespace fsdpc::mutation
