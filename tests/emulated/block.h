// Runs the blocks of a kernel: every thread is a fiber that runs until it meets a barrier, a shuffle or its end.
// Nothing else says who runs before whom: blocks, warps and lanes go forward or backward at random, and a warp goes on
// as far as it can before the next one does.
#pragma once

#include <cuda_runtime.h>

#include <functional>

namespace fsdpc::emulated {

/// All blocks, one after another; `thread` is the kernel as one thread runs it. Ends the process with a message when
/// threads wait at different barriers (two __syncthreads of the source are different), or at one that others have left
/// behind by returning.
void runBlocks(const Launch &launch, const std::function<void()> &thread);

} // namespace fsdpc::emulated
