#include "passes/support/clone.h"

#include "ir/ops/attributes.h"

namespace fsdpc {

void cloneBody(const Function &from, Function &to, ValueMap &values,
               llvm::function_ref<Value *(Builder &, const Node &, const ValueMap &)> replace) {
  for (const Argument &argument : from.arguments())
    if (!values.contains(argument.value.get()))
      values[argument.value.get()] = to.addArgument(argument.kind, argument.name, argument.value->type());
  Builder builder(to);
  for (Node *node : from) {
    if (node->op() == Op::ret)
      break;
    builder.inherit(*node);
    Value *replacement = replace ? replace(builder, *node, values) : nullptr;
    if (replacement) {
      values[node->result()] = replacement;
      continue;
    }
    llvm::SmallVector<Value *, 4> operands;
    for (Value *operand : node->operands())
      operands.push_back(values.lookup(operand));
    Node *copy = builder.clone(*node, operands);
    for (unsigned i = 0; i < node->resultCount(); ++i)
      values[node->result(i)] = copy->result(i);
  }
}

int64_t resultIndex(const Function &function, llvm::StringRef name) {
  const std::vector<std::string> &names = function.returnNode()->get<ReturnAttributes>().names;
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == name)
      return static_cast<int64_t>(i);
  return -1;
}

Value *resultValue(const Function &function, llvm::StringRef name) {
  int64_t index = resultIndex(function, name);
  return index < 0 ? nullptr : function.returnNode()->operand(static_cast<unsigned>(index));
}

void eraseResults(Function &function, llvm::function_ref<bool(llvm::StringRef name)> isObsolete) {
  Node *ret = function.returnNode();
  const std::vector<std::string> names = ret->get<ReturnAttributes>().names;
  llvm::SmallVector<Value *, 8> kept;
  std::vector<std::string> keptNames;
  for (unsigned i = 0; i < ret->operandCount(); ++i)
    if (!isObsolete(names[i])) {
      kept.push_back(ret->operand(i));
      keptNames.push_back(names[i]);
    }
  ret->erase();
  Builder(function).ret(kept, keptNames);
}

Node *firstUser(const Value &value) {
  Node *first = nullptr;
  for (const Use *use = value.uses(); use; use = use->next())
    if (!first || use->user()->isBefore(first))
      first = use->user();
  return first;
}

void eraseUnusedArguments(Function &function) {
  for (size_t i = function.arguments().size(); i-- > 0;)
    if (!function.arguments()[i].value->hasUses())
      function.eraseArgument(static_cast<unsigned>(i));
}

void eraseDeadNodes(Function &function) {
  for (Node *node = function.back(); node;) {
    Node *previous = node->previous();
    bool used = !(infoOf(*node).has(pure) || node->op() == Op::read);
    for (unsigned i = 0; i < node->resultCount(); ++i)
      used |= node->result(i)->hasUses();
    if (!used)
      node->erase();
    node = previous;
  }
}

} // namespace fsdpc
