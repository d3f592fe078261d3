// The part of the CUDA runtime that emitted programs use, for a machine without a GPU. The host compiler compiles the
// same program.cu and kernels, with this folder before the toolkit's headers.
//
//   streams   queues of operations. Only events order them. If several queues have an operation that may run, a random
//             one does, so a missing edge shows as a wrong result under some seed.
//   kernels   blocks one after another; the threads of a block are fibers, which switch at barriers and shuffles. The
//             order of blocks, warps and lanes is random, so a missing barrier shows.
//   capture   creates graphs, whose launches run their nodes in any order that the graph allows (capture.h).
//   memory    the host's, filled with a pattern when it is allocated and when it is freed.
//
// FSDPC_EMULATED_SEED chooses the interleaving; with FSDPC_EMULATED_EAGER every call is complete when it returns. Calls
// return what CUDA returns. Misuse that CUDA leaves undefined (a barrier that only some threads reach, a wait for an
// event of a device that is gone) ends the process.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <tuple>
#include <utility>

// For launch.h alone, which must know where dynamic shared memory is.
#define FSDPC_EMULATED_DEVICE
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __noinline__
// One block runs at a time.
#define __shared__ static
#define __align__(bytes) alignas(bytes)
#define CUDART_CB
#define CUDART_VERSION 13000

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// ---- device side

/// For the device thread that runs now; only one runs at a time.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace fsdpc::emulated {

/// Shared memory whose size the launch specifies.
extern std::byte *dynamicSharedMemory;

/// `barrier`: the same for the same __syncthreads. Returns whether any thread of the block brought `vote`.
bool synchronizeBlock(unsigned barrier, bool vote = false);
void synchronizeWarp(unsigned mask);
/// The value that lane `lane` of this warp passed in the same call.
std::uint64_t exchange(unsigned mask, std::uint64_t mine, int lane);
unsigned ballot(unsigned mask, bool mine);
int laneOfThread();

template <class T>
T shuffle(unsigned mask, T value, int lane) {
  static_assert(sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(mask, bits, lane);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

} // namespace fsdpc::emulated

inline void __syncthreads(std::source_location place = std::source_location::current()) {
  fsdpc::emulated::synchronizeBlock(place.line() * 1024 + place.column());
}
inline int __syncthreads_or(int predicate, std::source_location place = std::source_location::current()) {
  return fsdpc::emulated::synchronizeBlock(place.line() * 1024 + place.column(), predicate != 0);
}
inline void __syncwarp(unsigned mask = 0xffffffffu) { fsdpc::emulated::synchronizeWarp(mask); }
inline void __threadfence() {}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return fsdpc::emulated::shuffle(mask, value, lane);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return fsdpc::emulated::shuffle(mask, value, fsdpc::emulated::laneOfThread() ^ lanes);
}
/// Beyond the warp's end a thread gets its own value.
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance) {
  const int lane = fsdpc::emulated::laneOfThread() + static_cast<int>(distance);
  return fsdpc::emulated::shuffle(mask, value, lane < 32 ? lane : lane - static_cast<int>(distance));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
  const int lane = fsdpc::emulated::laneOfThread() - static_cast<int>(distance);
  return fsdpc::emulated::shuffle(mask, value, lane >= 0 ? lane : lane + static_cast<int>(distance));
}
inline unsigned __ballot_sync(unsigned mask, int predicate) { return fsdpc::emulated::ballot(mask, predicate != 0); }
/// Blocks and threads take turns, so nothing runs between the two halves.
template <class T>
T atomicAdd(T *at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}
template <class T>
T atomicMin(T *at, T value) {
  const T before = *at;
  *at = value < before ? value : before;
  return before;
}
template <class T>
T __ldg(const T *at) {
  return *at;
}

// ---- host side

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorIllegalState = 401,
  cudaErrorNotReady = 600,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorCapturedEvent = 907,
  cudaErrorStreamCaptureWrongThread = 908,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum { cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2 };
enum { cudaEventRecordDefault = 0, cudaEventRecordExternal = 1 };
enum { cudaGraphInstantiateFlagUseNodePriority = 8 };
/// Only this mode is emulated: a capturing thread may make no call that could break its capture.
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2,
};
enum cudaDeviceAttr {
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

namespace fsdpc::emulated {
struct Stream;
struct Event;
struct Graph;
struct GraphNode;
struct ExecutableGraph;
struct Launch {
  dim3 grid, block;
  std::size_t sharedBytes = 0;
};
cudaError_t enqueueKernel(Stream *stream, const Launch &launch, std::function<void()> thread);
} // namespace fsdpc::emulated

using cudaStream_t = fsdpc::emulated::Stream *;
using cudaEvent_t = fsdpc::emulated::Event *;
using cudaGraph_t = fsdpc::emulated::Graph *;
using cudaGraphNode_t = fsdpc::emulated::GraphNode *;
using cudaGraphExec_t = fsdpc::emulated::ExecutableGraph *;

const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaMemGetInfo(std::size_t *freeBytes, std::size_t *totalBytes);
cudaError_t cudaMalloc(void **pointer, std::size_t bytes);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaMallocHost(void **pointer, std::size_t bytes);
cudaError_t cudaFreeHost(void *pointer);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaMemcpyAsync(void *to, const void *from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, std::size_t bytes, cudaStream_t stream);
using cudaHostFn_t = void (*)(void *data);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executableGraph, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executableGraph, cudaStream_t stream);
/// Only counts them.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, std::size_t *count);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executableGraph);
template <class T>
cudaError_t cudaMemcpyFromSymbolAsync(void *to, const T &symbol, std::size_t bytes, std::size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpyAsync(to, reinterpret_cast<const std::byte *>(&symbol) + offset, bytes, kind, stream);
}

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*)(Parameters...), cudaFuncAttribute, int) {
  return cudaSuccess;
}

struct cudaLaunchAttribute {
  int unused;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute *attrs = nullptr;
  unsigned numAttrs = 0;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...),
                               Arguments &&...arguments) {
  std::tuple<std::decay_t<Parameters>...> values(std::forward<Arguments>(arguments)...);
  return fsdpc::emulated::enqueueKernel(config->stream, {config->gridDim, config->blockDim, config->dynamicSmemBytes},
                                        [kernel, values] { std::apply(kernel, values); });
}
