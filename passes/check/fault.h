// Error messages of the checker. The labels are listed in check_schedule.h.
#pragma once

#include "ir/module.h"
#include "llvm/Support/Error.h"

namespace fsdpc::check {

enum class Fault {
  useBeforeWait = 1,
  useAfterFree,
  gradientContribution,
  differentValue,
  missingEdge,
  wrongPlace,
  collectiveOrder,
  shardBounds,
  staleVersion,
};

/// "(S4) micro_step, unit @fc: <message>", and the node's text on a separate line.
llvm::Error fault(Fault kind, const Node &node, const llvm::Twine &message);
/// "(S4) micro_step: <message>"
llvm::Error fault(Fault kind, const Function &function, const llvm::Twine &message);
/// "(S4) <message>"
llvm::Error fault(Fault kind, const llvm::Twine &message);

/// %name, as printed. Walks the entire function: for messages only.
std::string textOf(const Value *value);
/// The node's text, truncated for large constants.
std::string textOf(const Node &node);

} // namespace fsdpc::check
