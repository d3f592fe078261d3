// Clones a function's nodes with other operands.
#pragma once

#include "ir/builder.h"
#include "ir/module.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

/// The results of a copy of `forward` that reads other inputs.
inline llvm::SmallVector<Value *, 4> rebuilt(Builder &builder, const Function &forward,
                                             llvm::ArrayRef<Value *> inputs) {
  llvm::DenseMap<const Value *, Value *> copies;
  for (auto [argument, input] : llvm::zip(forward.arguments(), inputs))
    copies[argument.value.get()] = input;
  llvm::SmallVector<Value *, 4> results;
  for (const Node *node = forward.front(); node; node = node->next()) {
    llvm::SmallVector<Value *, 4> operands;
    for (const Value *operand : node->operands())
      operands.push_back(copies.lookup(operand));
    if (node->op() == Op::ret)
      return operands;
    Node *copy = builder.clone(*node, operands);
    for (unsigned i = 0; i < node->resultCount(); ++i)
      copies[node->result(i)] = copy->result(i);
  }
  return results;
}

} // namespace fsdpc
