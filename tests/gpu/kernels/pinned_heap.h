// Host memory that the device accesses at the same address, for tests that were written for the emulated device and
// pass their vectors and local variables to kernels.
#pragma once

#include <cstddef>
#include <functional>

namespace fsdpc::gpu {

/// From now on `new` allocates pinned memory. Earlier allocations are unchanged.
void usePinnedHeap();

/// Calls `body` on a thread whose stack is pinned.
void runOnPinnedStack(std::size_t stackBytes, const std::function<void()> &body);

} // namespace fsdpc::gpu
