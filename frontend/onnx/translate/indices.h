// Helpers for gathers and scatters: indices known at compile time, and elements addressed along one axis.
#pragma once

#include "frontend/onnx/translate/node_translation.h"

namespace fsdpc {

/// Input i as i64. Rejects constants outside [-size, size) of their axis; negative ones count from its end. `sizes` has
/// one entry for every element of the last axis of the indices, or one for all. Other indices are checked at run time.
Value *indicesInRange(NodeTranslation &t, unsigned i, llvm::ArrayRef<int64_t> sizes);

/// GatherElements and ScatterElements as rows: `axis` is last, and the dims before it are equal in x and in the
/// indices. The indices may be smaller than x there and then reach only its first elements.
struct ElementRows {
  int64_t axis;
  Value *corner;  ///< of x: the elements that the indices can reach, x itself if all
  Value *rows;    ///< [dims..., elements of x along the axis]
  Value *indices; ///< [dims..., count, 1]
};
ElementRows elementRows(NodeTranslation &t);

} // namespace fsdpc
