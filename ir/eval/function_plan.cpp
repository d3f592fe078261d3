#include "ir/eval/function_plan.h"

#include "ir/op.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc {

FunctionPlan::FunctionPlan(const Function &function) : function(function) {
  llvm::DenseMap<const Value *, int32_t> slotOf;
  std::vector<int32_t> lastReader; // node index per slot; an unused value dies at its definition
  auto addSlot = [&](const Value *value, int32_t rootSlot, int32_t node) {
    auto slot = static_cast<int32_t>(root.size());
    slotOf[value] = slot;
    root.push_back(rootSlot < 0 ? slot : rootSlot);
    lastReader.push_back(node);
  };
  for (const Argument &argument : function.arguments())
    addSlot(argument.value.get(), -1, 0);
  for (const Node *node : function) {
    auto index = static_cast<int32_t>(nodes.size());
    NodePlan plan{node, {}, static_cast<int32_t>(root.size()), {}};
    for (const Value *operand : node->operands()) {
      assert(slotOf.contains(operand) && "a value is defined before it is used");
      plan.operands.push_back(slotOf[operand]);
      lastReader[plan.operands.back()] = index;
    }
    bool aliases = infoOf(*node).has(aliasesOperand);
    for (unsigned i = 0; i < node->resultCount(); ++i)
      addSlot(node->result(i), aliases ? root[plan.operands[0]] : -1, index);
    nodes.push_back(std::move(plan));
  }
  for (size_t slot = 0; slot < lastReader.size() && !nodes.empty(); ++slot)
    nodes[lastReader[slot]].dying.push_back(static_cast<int32_t>(slot));
}

} // namespace fsdpc
