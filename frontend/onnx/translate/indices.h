// What gathers and scatters share: indices that are known when compiling, elements that are addressed along one axis.
#pragma once

#include "frontend/onnx/translate/node_translation.h"

namespace fsdpc {

/// Input i as i64. Rejects constants outside [-size, size) of their axis, negative ones counting from its end; `sizes`
/// has one for every entry of the last axis of the indices, or one for all. What only a run can know is checked there.
Value *indicesInRange(NodeTranslation &t, unsigned i, llvm::ArrayRef<int64_t> sizes);

/// GatherElements and ScatterElements as rows: `axis` last, and the same dims before it in x and in the indices, which
/// may have fewer elements than x there and so reach its first ones only.
struct ElementRows {
  int64_t axis;
  Value *corner;  ///< of x: the elements that the indices can reach, x itself if all
  Value *rows;    ///< [dims..., elements of x along the axis]
  Value *indices; ///< [dims..., count, 1]
};
ElementRows elementRows(NodeTranslation &t);

} // namespace fsdpc
