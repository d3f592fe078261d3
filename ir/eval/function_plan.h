// A function prepared for evaluation: values as numbered slots, and the node after which each slot's tensor is dropped.
#pragma once

#include "ir/module.h"
#include <vector>

namespace fsdpc {

struct NodePlan {
  const Node *node;
  llvm::SmallVector<int32_t, 3> operands;
  int32_t firstResult;                 ///< results have consecutive slots
  llvm::SmallVector<int32_t, 2> dying; ///< slots that no later node reads
};

/// Built once per function and shared by all ranks. Arguments have the first slots.
struct FunctionPlan {
  explicit FunctionPlan(const Function &function);
  const Function &function;
  std::vector<NodePlan> nodes;
  std::vector<int32_t> root; ///< per slot: the slot whose memory it is (through reshapes and views)
};

} // namespace fsdpc
