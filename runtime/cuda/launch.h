// Kernel launches: one function instead of <<<>>>, so that the same source also runs without a GPU.
#pragma once

#include "runtime/common/address.h"
#include "runtime/cuda/device.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace fsdpc::rt {

struct Grid {
  dim3 blocks;
  dim3 threads;
  std::size_t sharedBytes = 0; ///< of dynamic shared memory
};

/// Enqueues the kernel. Arguments are converted to the kernel's parameters.
template <class... Parameters, class... Arguments>
void launchOn(cudaStream_t stream, const Grid &grid, void (*kernel)(Parameters...), Arguments &&...arguments) {
  cudaLaunchConfig_t configuration = {};
  configuration.gridDim = grid.blocks;
  configuration.blockDim = grid.threads;
  configuration.dynamicSmemBytes = grid.sharedBytes;
  configuration.stream = stream;
  checkCuda(cudaLaunchKernelEx(&configuration, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...),
            "kernel launch");
}

/// On the compute stream.
template <class... Parameters, class... Arguments>
void launch(const Context &c, const Grid &grid, void (*kernel)(Parameters...), Arguments &&...arguments) {
  launchOn(deviceOf(c).compute, grid, kernel, std::forward<Arguments>(arguments)...);
}

/// A grid-stride loop over `count` elements: enough blocks to fill the device, but no more than the work needs.
inline Grid gridFor(const Context &c, std::int64_t count, unsigned threads = 256) {
  const std::int64_t needed = (count + threads - 1) / threads;
  const std::int64_t most = std::int64_t{deviceOf(c).multiprocessors} * 16;
  return {dim3(static_cast<unsigned>(std::max<std::int64_t>(1, std::min(needed, most)))), dim3(threads)};
}

/// Dynamic shared memory of the block. A compiler that sees only the host side for a real device has none.
#if defined(__CUDACC__)
template <class T>
__device__ T *sharedMemory() {
  extern __shared__ __align__(16) unsigned char dynamicShared[];
  return reinterpret_cast<T *>(dynamicShared);
}
#elif defined(FSDPC_EMULATED_DEVICE)
template <class T>
T *sharedMemory() {
  return reinterpret_cast<T *>(emulated::dynamicSharedMemory);
}
#endif

} // namespace fsdpc::rt
