// What bounds the integers of an input: the tables they index.
#pragma once

#include "ir/module.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

struct IndexLimit {
  int64_t limit = 0;              ///< 0: none
  std::optional<int64_t> ignored; ///< allowed too: a label that no loss counts
};

/// Per input name: elements must lie in [0, limit), because they reach (through reshapes, casts, slices and the like)
/// the indices of a gather over `limit` rows, or the labels of a loss over `limit` classes. The smallest, if there are
/// several. A label is ignored only where every such use is a loss that ignores it.
llvm::StringMap<IndexLimit> indexLimits(const Module &module);

} // namespace fsdpc
