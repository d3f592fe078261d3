// Host memory that the device reaches under the same address, for tests that were written for the emulated device and
// hand their vectors and local variables to kernels.
#pragma once

#include <cstddef>
#include <functional>

namespace fsdpc::gpu {

/// From now on `new` takes pinned memory. Whatever was taken before stays what it is.
void usePinnedHeap();

/// Calls `body` on a thread whose stack is pinned.
void runOnPinnedStack(std::size_t stackBytes, const std::function<void()> &body);

} // namespace fsdpc::gpu
