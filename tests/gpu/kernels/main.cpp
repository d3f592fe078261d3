// GoogleTest's main for the kernel tests on a real device. They were written for the emulated one, where memory is the
// host's and a call is complete when it returns. Here vectors and local variables are pinned memory, which the device
// accesses at the same address. Kernels are launched one by one, and this program's own cudaMemcpyAsync and
// cudaMemsetAsync, which override CUDA's, wait.
//
// Ends with exit 10 and one line if there is no device.
#include "runtime/common/failure.h"
#include "runtime/cuda/choose_device.h"
#include "tests/gpu/kernels/pinned_heap.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace {

/// CUDA's function of that name, which this program's overrides.
template <class Function>
Function *behind(const char *name) {
  return reinterpret_cast<Function *>(::dlsym(RTLD_NEXT, name));
}

cudaError_t ended(cudaError_t error, cudaStream_t stream) {
  return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

} // namespace

extern "C" cudaError_t cudaMemcpyAsync(void *to, const void *from, std::size_t bytes, cudaMemcpyKind kind,
                                       cudaStream_t stream) {
  static auto *const copy = behind<decltype(cudaMemcpyAsync)>("cudaMemcpyAsync");
  return ended(copy(to, from, bytes, kind, stream), stream);
}

extern "C" cudaError_t cudaMemsetAsync(void *to, int value, std::size_t bytes, cudaStream_t stream) {
  static auto *const fill = behind<decltype(cudaMemsetAsync)>("cudaMemsetAsync");
  return ended(fill(to, value, bytes, stream), stream);
}

int main(int argc, char **argv) {
  constexpr std::size_t stackBytes = std::size_t{64} << 20;
  testing::InitGoogleTest(&argc, argv);
  // Set before the device is first used. The caller may set another value, for launches as in programs.
  ::setenv("CUDA_LAUNCH_BLOCKING", "1", /*overwrite=*/0);
  try {
    fsdpc::rt::chooseDevice(0);
  } catch (const fsdpc::rt::Failure &failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return static_cast<int>(failure.code);
  }
  fsdpc::gpu::usePinnedHeap();
  int status = 0;
  fsdpc::gpu::runOnPinnedStack(stackBytes, [&] { status = RUN_ALL_TESTS(); });
  return status;
}
