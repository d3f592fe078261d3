// What a mask hides, found from how it is computed, at any size: ranges, comparisons, selects, casts, sums, moves and
// gathers along ranges. Elements are read only of matrices that the file stores.
#pragma once

#include "passes/graph/score_mask.h"
#include "passes/graph/visibility.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc {

/// At most one of both is known.
struct MaskStructure {
  std::optional<Visibility> visible; ///< not negated
  double hidden = 0;                 ///< with `visible`: added to the scores of hidden keys
  Value *small = nullptr;            ///< the mask's value, of size 1 on the axes of queries or of keys
};

/// Looks at each mask once: the layers of a model share one.
class MaskStructures {
public:
  /// Inserts small nodes through `builder` for what the graph holds only in the shape of the scores. Masks are asked
  /// for in the order of the function.
  const MaskStructure &of(const ScoreMask &mask, Builder &builder);

private:
  struct Entry {
    Shape scores;
    double fill = 0;
    MaskStructure structure;
  };
  llvm::DenseMap<std::pair<const Value *, int>, Entry> known; ///< by value and kind
};

} // namespace fsdpc
