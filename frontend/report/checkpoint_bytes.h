// The memory that a program maps for the copy of a checkpoint (`--checkpoint_staging host`).
#pragma once

#include "ir/module.h"

namespace fsdpc {

/// Bytes of one rank, the maximum over ranks. `planned`: at the planned stage.
int64_t checkpointStagingBytes(const Module &planned);

} // namespace fsdpc
