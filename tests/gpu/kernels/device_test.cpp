// Properties of kernel launches that only a real device shows: the emulated device accepts any pointer, any launch and
// any shared memory, and runs one block at a time.

#include <gtest/gtest.h>

#include <cuda_runtime.h>

#include <cstdlib>
#include <sys/mman.h>

namespace fsdpc::rt {
namespace {

__global__ void store(int *to, int value) { *to = value; }

__global__ void fillShared(int *sum, int count) {
  extern __shared__ int values[];
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
    values[i] = i;
  __syncthreads();
  if (threadIdx.x == 0) {
    int total = 0;
    for (int i = 0; i < count; ++i)
      total += values[i] & 1;
    *sum = total;
  }
}

/// Every block writes a value and takes a ticket; the last one, on whichever multiprocessor, must see all values.
__global__ void addByLastBlock(int *values, unsigned *tickets, int *sum) {
  values[blockIdx.x] = static_cast<int>(blockIdx.x) + 1;
  __threadfence();
  if (atomicAdd(tickets, 1u) != gridDim.x - 1)
    return;
  __threadfence();
  int total = 0;
  for (unsigned i = 0; i < gridDim.x; ++i)
    total += const_cast<volatile int *>(values)[i];
  *sum = total;
}

__global__ void spin(long long cycles) {
  for (const long long begin = clock64(); clock64() - begin < cycles;)
    ;
}

/// Device memory.
template <class T>
class OnDevice {
public:
  explicit OnDevice(std::size_t count) {
    EXPECT_EQ(cudaMalloc(&pointer, count * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemset(pointer, 0, count * sizeof(T)), cudaSuccess);
  }
  ~OnDevice() { cudaFree(pointer); }
  OnDevice(const OnDevice &) = delete;
  OnDevice &operator=(const OnDevice &) = delete;
  T *get() const { return pointer; }
  T first() const {
    T value{};
    EXPECT_EQ(cudaMemcpy(&value, pointer, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
    return value;
  }

private:
  T *pointer = nullptr;
};

TEST(RealDevice, ALaunchOfTooManyThreadsIsRefused) {
  const OnDevice<int> to(1);
  store<<<1, 1025>>>(to.get(), 7);
  EXPECT_NE(cudaGetLastError(), cudaSuccess); // which error depends on the driver
  EXPECT_EQ(to.first(), 0);
}

TEST(RealDevice, AGridBeyondTheSecondAxisIsRefused) {
  const OnDevice<int> to(1);
  store<<<dim3(1, 65536), 1>>>(to.get(), 7);
  EXPECT_NE(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(to.first(), 0);
}

TEST(RealDevice, SharedMemoryBeyond48KiBIsThereOnlyWhereItWasAskedFor) {
  constexpr int bytes = 64 << 10, count = bytes / static_cast<int>(sizeof(int));
  const OnDevice<int> sum(1);
  fillShared<<<1, 256, bytes>>>(sum.get(), count);
  EXPECT_NE(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(sum.first(), 0);
  ASSERT_EQ(cudaFuncSetAttribute(fillShared, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), cudaSuccess);
  fillShared<<<1, 256, bytes>>>(sum.get(), count);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(sum.first(), count / 2);
}

TEST(RealDevice, TheLastBlockSeesWhatAllBlocksHaveWritten) {
  constexpr int blocks = 4096;
  for (int round = 0; round < 50; ++round) {
    const OnDevice<int> values(blocks), sum(1);
    const OnDevice<unsigned> tickets(1);
    addByLastBlock<<<blocks, 1>>>(values.get(), tickets.get(), sum.get());
    ASSERT_EQ(sum.first(), blocks * (blocks + 1) / 2) << round;
  }
}

/// StepGraph and DeviceProgress rely on this: the host's query is about this launch, not about the previous one.
TEST(RealDevice, AnEventThatAGraphRecordsIsNotReadyBeforeTheGraphComesToIt) {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  spin<<<1, 1, 0, stream>>>(200'000'000);
  ASSERT_EQ(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (int launch = 0; launch < 3; ++launch) {
    ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady) << launch;
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event), cudaSuccess) << launch;
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaEventDestroy(event);
  cudaStreamDestroy(stream);
}

/// Status 0: the fault was reported, or devices of this system can access all memory.
[[noreturn]] void storeIntoPageableMemory() {
  int givesAll = 0;
  cudaDeviceGetAttribute(&givesAll, cudaDevAttrPageableMemoryAccess, 0);
  // This program's own heap is pinned (pinned_heap.h).
  void *page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  store<<<1, 1>>>(static_cast<int *>(page), 7);
  const bool isSeen = cudaDeviceSynchronize() == cudaErrorIllegalAddress;
  std::exit(isSeen || givesAll ? 0 : 1);
}

// In a separate process, since the context accepts no more calls after the fault.
TEST(RealDeviceDeathTest, APointerOfTheHostThatIsNotPinnedIsAFaultOfTheKernel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(storeIntoPageableMemory(), testing::ExitedWithCode(0), "");
}

} // namespace
} // namespace fsdpc::rt
