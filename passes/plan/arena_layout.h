// Offsets for buffers that come and go: those that live at the same time lie apart.
#pragma once

#include "passes/plan/live_ranges.h"

namespace fsdpc {

struct ArenaLayout {
  std::vector<int64_t> offsets; ///< per buffer, multiples of the alignment
  int64_t heightBytes = 0;
};

/// Up to a few thousand buffers: the largest first, each at the lowest offset where it meets nobody (quadratic, tight).
/// Beyond: in order of time, each in the smallest hole that holds it.
ArenaLayout layOut(llvm::ArrayRef<Buffer *> buffers, int64_t alignmentBytes);

} // namespace fsdpc
