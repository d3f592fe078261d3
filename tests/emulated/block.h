// Runs the blocks of a kernel. Every thread is a fiber that runs until it meets a barrier, a shuffle or its end.
// Nothing else orders threads: blocks, warps and lanes run in forward or backward order at random, and a warp runs as
// far as it can before the next one does.
#pragma once

#include <cuda_runtime.h>

#include <functional>

namespace fsdpc::emulated {

/// Runs all blocks, one after another; `thread` is the kernel as one thread runs it. Ends the process with a message if
/// threads wait at different barriers (two __syncthreads in the source are different), or at one that other threads can
/// no longer reach because they returned.
void runBlocks(const Launch &launch, const std::function<void()> &thread);

} // namespace fsdpc::emulated
