// Offsets for temporary buffers. Buffers that are live at the same time do not overlap.
#pragma once

#include "passes/plan/live_ranges.h"

namespace fsdpc {

struct ArenaLayout {
  std::vector<int64_t> offsets; ///< per buffer, multiples of the alignment
  int64_t heightBytes = 0;
};

/// Largest first up to a few thousand buffers; beyond, that for the largest or all in order of time, whichever is
/// lower. See arena_layout.cpp.
ArenaLayout layOut(llvm::ArrayRef<Buffer *> buffers, int64_t alignmentBytes);

} // namespace fsdpc
