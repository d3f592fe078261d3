// Bounds of the integers of an input, from the tables that they index.
#pragma once

#include "ir/module.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

/// The integers of a sample's elements [first, first + count) must be in [0, limit) or equal `ignored`.
struct IndexRange {
  int64_t first = 0, count = 0;
  int64_t limit = 0;
  std::optional<int64_t> ignored; ///< also allowed: a label that no loss counts
};

/// Per input name, ascending ranges of elements that reach (through reshapes, casts, slices and the like) the indices
/// of a gather over `limit` rows, or the labels of a loss over `limit` classes. Each element has the range of its own
/// uses, since columns of one input may index tables of different sizes. With several uses the smallest limit holds,
/// and a label is ignored only if every use is a loss that ignores it. Elements that reach neither are in no range.
llvm::StringMap<std::vector<IndexRange>> indexRanges(const Module &module);

} // namespace fsdpc
