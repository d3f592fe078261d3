#include "runtime/cuda/device.h"

#include "runtime/common/watchdog.h"
#include "runtime/cuda/device_progress.h"
#include "runtime/cuda/index_faults.h"
#include "runtime/cuda/nccl_communicators.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

namespace fsdpc::rt {
namespace {

constexpr int collectivePriority = -1;
constexpr auto pollInterval = std::chrono::microseconds(20);

/// How often a long wait polls the device's progress: often enough to see every rank before a timeout.
double lookSeconds(const Device &device) { return std::min(0.25, device.timeoutSeconds / 4); }

/// Throws if no visible rank has made progress within the limit and this rank has waited that long itself.
void requireProgress(const Device &device, double waitedSeconds) {
  if (device.progress)
    device.progress->look();
  if (waitedSeconds <= device.timeoutSeconds)
    return;
  if (!device.progress)
    throw Failure(ExitCode::timeout,
                  "the device has made no progress for " + std::to_string(device.timeoutSeconds) + " s");
  Pulse &pulse = device.progress->pulse();
  if (pulse.silentSeconds() > device.timeoutSeconds)
    throw diagnose(pulse, device.timeoutSeconds).failure;
}

} // namespace

void checkCuda(cudaError_t error, const char *what) {
  if (error == cudaSuccess)
    return;
  const std::string message = std::string(what) + ": " + cudaGetErrorString(error);
  throw Failure(error == cudaErrorMemoryAllocation ? ExitCode::memory : ExitCode::internal, message);
}

cudaEvent_t makeEvent() {
  cudaEvent_t event = nullptr;
  checkCuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return event;
}

void openDevice(Device &device, std::size_t collectives) {
  checkCuda(cudaStreamCreateWithPriority(&device.compute, cudaStreamNonBlocking, 0), "cudaStreamCreate");
  for (cudaStream_t &channel : device.channels)
    checkCuda(cudaStreamCreateWithPriority(&channel, cudaStreamNonBlocking, collectivePriority), "cudaStreamCreate");
  int id = 0;
  checkCuda(cudaGetDevice(&id), "cudaGetDevice");
  checkCuda(cudaDeviceGetAttribute(&device.multiprocessors, cudaDevAttrMultiProcessorCount, id),
            "cudaDeviceGetAttribute");
  device.collectives.resize(collectives);
  for (CollectiveState &state : device.collectives)
    state.completed = makeEvent();
  device.joined = makeEvent();
  checkCuda(cudaMallocHost(reinterpret_cast<void **>(&device.indexFault), sizeof *device.indexFault), "cudaMallocHost");
  *device.indexFault = IndexFaults::none;
}

void closeDevice(Device &device) {
  for (const CollectiveState &state : device.collectives)
    cudaEventDestroy(state.completed);
  cudaFreeHost(device.indexFault);
  cudaEventDestroy(device.joined);
  for (cudaStream_t channel : device.channels)
    cudaStreamDestroy(channel);
  cudaStreamDestroy(device.compute);
}

void noteJoined(Device &device) {
  ++device.joins;
  device.joinedSequence = device.sequence;
}

void recordForHost(const Device &device, cudaEvent_t event, cudaStream_t stream) {
  const unsigned flags = device.captured ? cudaEventRecordExternal : cudaEventRecordDefault;
  checkCuda(cudaEventRecordWithFlags(event, stream, flags), "cudaEventRecordWithFlags");
}

void synchronize(const Device &device, cudaEvent_t event) {
  using Clock = std::chrono::steady_clock;
  const auto secondsSince = [](Clock::time_point moment) {
    return std::chrono::duration<double>(Clock::now() - moment).count();
  };
  const auto begin = Clock::now();
  auto looked = begin;
  for (;;) {
    const cudaError_t state = cudaEventQuery(event);
    if (state == cudaSuccess)
      return;
    if (state != cudaErrorNotReady)
      checkCuda(state, "a kernel of the program");
    if (device.communicators)
      device.communicators->checkErrors();
    if (secondsSince(looked) > lookSeconds(device)) {
      looked = Clock::now();
      requireProgress(device, secondsSince(begin));
    }
    std::this_thread::sleep_for(pollInterval);
  }
}

void synchronizeCompute(const Device &device) {
  checkCuda(cudaEventRecord(device.joined, device.compute), "cudaEventRecord");
  synchronize(device, device.joined);
}

} // namespace fsdpc::rt
