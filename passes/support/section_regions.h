// Groups consecutive nodes of one section into regions. A region becomes one printed function.
#pragma once

#include "ir/module.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc {

/// A region is a maximal sequence of consecutive nodes of one section; a unit that is entered again has another one.
/// Returns the number of every node's region, ascending in program order from 0. Nodes created later have none until
/// their creator assigns one.
llvm::DenseMap<const Node *, size_t> sectionRegions(const Function &function);

/// The same, except: a recompute section and the part of backward that follows it in the same unit are one region, and
/// updates of other units that have been moved in between belong to the region that they interrupt.
llvm::DenseMap<const Node *, size_t> unitRegions(const Function &function);

} // namespace fsdpc
