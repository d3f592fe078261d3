// Which nodes stand together in one section, and so in one printed function.
#pragma once

#include "ir/module.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc {

/// A run is a maximal sequence of nodes of one section: a unit that is entered again has another one. The number of
/// every node's run, ascending in program order from 0; nodes that are made later have none until their maker says so.
llvm::DenseMap<const Node *, size_t> sectionRuns(const Function &function);

/// The same, but what backward computes again and the part of backward that follows it in the same unit are one run,
/// and updates of other units that have been moved in between belong to the run that they interrupt.
llvm::DenseMap<const Node *, size_t> unitRuns(const Function &function);

} // namespace fsdpc
