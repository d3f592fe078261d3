// Streams, events and kernels for tests of the emulated device.
#pragma once

#include <cuda_runtime.h>

#include <gtest/gtest.h>

#include <type_traits>

namespace fsdpc::emulated {

/// A stream and an event that are destroyed with the test.
struct OwnedStream {
  cudaStream_t handle = nullptr;
  OwnedStream() { cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking, 0); }
  ~OwnedStream() { cudaStreamDestroy(handle); }
  operator cudaStream_t() const { return handle; }
};
struct OwnedEvent {
  cudaEvent_t handle = nullptr;
  OwnedEvent() { cudaEventCreateWithFlags(&handle, cudaEventDisableTiming); }
  ~OwnedEvent() { cudaEventDestroy(handle); }
  operator cudaEvent_t() const { return handle; }
};

__global__ inline void addOne(int *value) { *value += 1; }
__global__ inline void copyValue(const int *from, int *to) { *to = *from; }

template <class... Parameters>
void start(cudaStream_t stream, void (*kernel)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  cudaLaunchConfig_t configuration = {};
  configuration.stream = stream;
  ASSERT_EQ(cudaLaunchKernelEx(&configuration, kernel, arguments...), cudaSuccess);
}

} // namespace fsdpc::emulated
