// Values that one training step carries over to the next.
#pragma once

#include "ir/module.h"

namespace fsdpc {

/// A carried argument that no earlier function of the step returns. Its value is what the previous step left: the
/// gather of a state's last version (V9). If there was no previous step, it is the gather of the state's current
/// version.
/// The same holds after a standalone function (eval_step, predict, export). Such a function begins with the wait for
/// what the step left and reuses its memory, so the next step finds no previous step.
struct CarriedOver {
  const Argument *argument = nullptr;
  Function *receiver = nullptr;
  Value *future = nullptr; ///< the step's result of the argument's name; null: there is none
  Node *start = nullptr;   ///< the gather that yields the future; null if the future is from another op
  Node *access = nullptr;  ///< the read that yields the gathered value, or the write that stores it

  llvm::StringRef state() const;
};

/// The pointers are null only in modules that violate V9.
std::vector<CarriedOver> carriedOverSteps(const Module &module);

/// True if `wait` waits for a gather that the previous step started. `start` is the start that its future stands for.
bool waitsForStepBefore(const Node &wait, const Node &start);

/// The functions of the module in the order in which a step calls them.
llvm::SmallVector<Function *, 8> inCallOrder(const Module &module);

} // namespace fsdpc
