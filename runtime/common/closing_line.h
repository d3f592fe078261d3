// The last words of a run that ends early.
#pragma once

#include "runtime/common/failure.h"

#include <cstdint>

namespace fsdpc::rt {

/// `fsdpc: error: <message>` and `fsdpc: exit=<code> rank=<rank> [step=<step>] [key=value ...]` on stderr, at once,
/// past the C library's buffers: also when a thread that hangs holds them. `step` 0 is left out.
void printFailure(const Failure &failure, int rank, std::int64_t step);

} // namespace fsdpc::rt
