// Work that each rank does alone and may fail at, followed by a word among the ranks, so that they go on or end
// together.
#pragma once

#include "runtime/common/platform.h"

#include <functional>

namespace fsdpc::rt {

/// Collective. Runs `work`, which must not call collectives. If it threw a Failure anywhere, every rank throws one with
/// `everyRank`: that of the lowest failing rank, which is the one to speak (elsewhere only the code and the rank are
/// known).
void agreed(Platform &platform, const std::function<void()> &work);

} // namespace fsdpc::rt
