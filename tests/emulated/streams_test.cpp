// The runtime's streams, events and staged memory, under many interleavings.
#include "runtime/cuda/collectives.h"
#include "runtime/cuda/device_memory.h"
#include "tests/emulated/interleaving.h"

#include <gtest/gtest.h>

namespace fsdpc::rt {
namespace {

using emulated::Interleaved, emulated::seedsTried;

struct OpenedDevice {
  Device device;
  Context context;
  OpenedDevice() {
    openDevice(device, 0);
    context.target = &device;
  }
  ~OpenedDevice() { closeDevice(device); }
};

__global__ void addInto(const int *from, int *to) { *to += *from; }

void startOn(cudaStream_t stream, const int *from, int *to) {
  cudaLaunchConfig_t configuration = {};
  configuration.stream = stream;
  checkCuda(cudaLaunchKernelEx(&configuration, addInto, from, to), "launch");
}

TEST(CudaStreams, JoinedStreamsSeeWhatAllDidBeforeAndNothingOfLater) {
  for (unsigned seed = 0; seed < seedsTried; ++seed) {
    const Interleaved interleaved(seed);
    OpenedDevice opened;
    const cudaStream_t streams[3] = {opened.device.compute, opened.device.channels[0], opened.device.channels[1]};
    // Each adds its neighbour's number to its own, round after round; a number of the wrong round would change the sum.
    int numbers[4][3] = {{1, 10, 100}};
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 3; ++i) {
        startOn(streams[i], &numbers[round][i], &numbers[round + 1][i]);
        startOn(streams[i], &numbers[round][(i + 1) % 3], &numbers[round + 1][i]);
      }
      joinStreams(opened.context);
    }
    synchronizeCompute(opened.device);
    ASSERT_EQ(numbers[3][0], 1 + 3 * 10 + 3 * 100 + 1) << seed;
    ASSERT_EQ(numbers[3][1], 10 + 3 * 100 + 3 * 1 + 10) << seed;
    ASSERT_EQ(numbers[3][2], 100 + 3 * 1 + 3 * 10 + 100) << seed;
  }
}

TEST(CudaStreams, AChannelWaitsForTheEventAndForNothingIfItWasNeverRecorded) {
  for (unsigned seed = 0; seed < seedsTried; ++seed) {
    const Interleaved interleaved(seed);
    OpenedDevice opened;
    Event events[2];
    createEvents(opened.context, events);
    int numbers[3] = {1, 0, 0};
    await(opened.context, Channel::comm, events[0]);
    startOn(opened.device.compute, &numbers[0], &numbers[1]);
    record(opened.context, events[1]);
    await(opened.context, Channel::comm, events[1]);
    startOn(opened.device.channels[0], &numbers[1], &numbers[2]);
    joinStreams(opened.context);
    synchronizeCompute(opened.device);
    ASSERT_EQ(numbers[2], 1) << seed;
    for (const Event &event : events)
      cudaEventDestroy(event.handle);
  }
}

TEST(CudaStreams, ADeviceThatDoesNothingForTooLongIsATimeout) {
  const Interleaved interleaved(0);
  OpenedDevice opened;
  opened.device.timeoutSeconds = 0.02;
  auto opens = std::make_shared<emulated::Record>();
  emulated::Device::instance().enqueue(*opened.device.compute, {.awaited = opens});
  try {
    synchronizeCompute(opened.device);
    ADD_FAILURE() << "it ended";
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, ExitCode::timeout);
  }
  opens->isCompleted = true;
  synchronizeCompute(opened.device);
}

TEST(StagedMemory, KernelsSeeEveryStoreThoughTheHostIsAhead) {
  for (unsigned seed = 0; seed < seedsTried; ++seed) {
    const Interleaved interleaved(seed);
    OpenedDevice opened;
    int arena[2] = {0, 0};
    opened.context.privateArena = reinterpret_cast<std::byte *>(arena);
    StagedMemory memory(opened.context);
    const Place given{Space::privateSpace, 0}, sum{Space::privateSpace, sizeof(int)};
    for (int i = 1; i <= 50; ++i) { // more than it has buffers
      *reinterpret_cast<int *>(memory.stage(sizeof(int))) = i;
      memory.store(given, sizeof(int));
      startOn(opened.device.compute, &arena[0], &arena[1]);
    }
    int loaded = 0;
    std::memcpy(&loaded, memory.load(sum, sizeof(int)), sizeof loaded);
    ASSERT_EQ(loaded, 50 * 51 / 2) << seed;
  }
}

} // namespace
} // namespace fsdpc::rt
