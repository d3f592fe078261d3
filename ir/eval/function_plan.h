// A function laid out for evaluation: values as numbered slots, and after which node each slot's tensor can go.
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

/// Made once per function and read by all ranks. Arguments have the first slots.
struct FunctionPlan {
  explicit FunctionPlan(const Function &function);
  const Function &function;
  std::vector<NodePlan> nodes;
  std::vector<int32_t> root; ///< per slot: the slot whose memory it is (through reshapes and views)
};

} // namespace fsdpc
