// What a step leaves to the next one.
#pragma once

#include "ir/module.h"

namespace fsdpc {

/// A carried argument that no earlier function of the step returns stands for what the step before left: the gather of
/// a state's last version (V9). Where no step was before, it is the gather of what the state holds then.
/// So is it behind a function that stands alone (eval_step, export): those begin with the wait for what the step left
/// and use its memory, and the next step finds no step before.
struct CarriedOver {
  const Argument *argument = nullptr;
  Function *taker = nullptr;
  Value *future = nullptr; ///< that the step returns under the argument's name; null: it returns none
  Node *start = nullptr;   ///< the gather that the future is of; null if it is something else
  Node *access = nullptr;  ///< the read that gives what is gathered, or the write that makes it the state's

  llvm::StringRef state() const;
};

/// The pointers are null only in modules that break V9.
std::vector<CarriedOver> carriedOverSteps(const Module &module);

/// Is this a wait for what the step before started? `start` is what its future stands for.
bool waitsForStepBefore(const Node &wait, const Node &start);

/// The functions of the module in the order in which a step calls them.
llvm::SmallVector<Function *, 8> inCallOrder(const Module &module);

} // namespace fsdpc
