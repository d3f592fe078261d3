// GoogleTest's main for the kernel tests on a real device. They were written for the emulated one, where memory is the
// host's and a call has ended when it returns: here vectors and local variables are pinned memory, which the device
// reaches under the same address, kernels are launched one by one, and copies are waited for (`--wrap`).
//
// Ends with exit 10 and one line where there is no device.
#include "runtime/common/failure.h"
#include "runtime/cuda/choose_device.h"
#include "tests/gpu/kernels/pinned_heap.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

extern "C" {

cudaError_t __real_cudaMemcpyAsync(void *to, const void *from, std::size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream);
cudaError_t __wrap_cudaMemcpyAsync(void *to, const void *from, std::size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream) {
  const cudaError_t error = __real_cudaMemcpyAsync(to, from, bytes, kind, stream);
  return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

cudaError_t __real_cudaMemsetAsync(void *to, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t __wrap_cudaMemsetAsync(void *to, int value, std::size_t bytes, cudaStream_t stream) {
  const cudaError_t error = __real_cudaMemsetAsync(to, value, bytes, stream);
  return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

} // extern "C"

int main(int argc, char **argv) {
  constexpr std::size_t stackBytes = std::size_t{64} << 20;
  testing::InitGoogleTest(&argc, argv);
  ::setenv("CUDA_LAUNCH_BLOCKING", "1", 1); // before the device is first used
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
