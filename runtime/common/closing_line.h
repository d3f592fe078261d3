// The last output of a run that ends early.
#pragma once

#include "runtime/common/failure.h"

#include <cstdint>

namespace fsdpc::rt {

/// Prints `fsdpc: error: <message>` and `fsdpc: exit=<code> rank=<rank> [step=<step>] [key=value ...]` on stderr,
/// immediately. Bypasses the buffers of the C library, so it works even while a hung thread holds them. A `step` of 0
/// is omitted.
void printFailure(const Failure &failure, int rank, std::int64_t step);

} // namespace fsdpc::rt
