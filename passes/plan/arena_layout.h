// Offsets for buffers that come and go: those that live at the same time lie apart.
#pragma once

#include "passes/plan/live_ranges.h"

namespace fsdpc {

struct ArenaLayout {
  std::vector<int64_t> offsets; ///< per buffer, multiples of the alignment
  int64_t heightBytes = 0;
};

/// Largest first up to a few thousand buffers, in order of time beyond: arena_layout.cpp says how.
ArenaLayout layOut(llvm::ArrayRef<Buffer *> buffers, int64_t alignmentBytes);

} // namespace fsdpc
