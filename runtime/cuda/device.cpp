#include "runtime/cuda/device.h"

#include "runtime/cuda/index_faults.h"
#include "runtime/cuda/nccl_communicators.h"

#include <chrono>
#include <string>
#include <thread>

namespace fsdpc::rt {
namespace {

constexpr int collectivePriority = -1;
constexpr auto pollInterval = std::chrono::microseconds(20);

cudaEvent_t makeEvent() {
  cudaEvent_t event = nullptr;
  checkCuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return event;
}

bool isOutstanding(const CollectiveState &state) {
  return state.started != 0 && cudaEventQuery(state.isInGraph ? state.ended : state.completed) == cudaErrorNotReady;
}

/// Of those that were started and have not ended, the one started first.
[[noreturn]] void failForTimeout(const Device &device) {
  const auto collectives = programCollectives();
  const std::size_t none = device.collectives.size();
  std::size_t first = none;
  for (std::size_t i = 0; i < none; ++i)
    if (isOutstanding(device.collectives[i]) &&
        (first == none || device.collectives[i].started < device.collectives[first].started))
      first = i;
  if (first == none)
    throw Failure(ExitCode::timeout, "the device has done nothing for " + std::to_string(device.timeoutSeconds) + " s");
  const CollectiveInfo *info = collectives.empty() ? nullptr : &collectives[first % collectives.size()];
  const std::string op = info ? info->op : "collective", unit = info ? info->unit : "";
  Failure failure(ExitCode::timeout, op + (unit.empty() ? "" : " of unit " + unit) + " has not ended within " +
                                         std::to_string(device.timeoutSeconds) +
                                         " s (--train_timeout_seconds); a rank is missing or stands elsewhere");
  failure.details = (unit.empty() ? "" : "unit=" + unit + " ") +
                    "seq=" + std::to_string(device.collectives[first].started) + " op=" + op;
  throw failure;
}

} // namespace

void checkCuda(cudaError_t error, const char *what) {
  if (error == cudaSuccess)
    return;
  const std::string message = std::string(what) + ": " + cudaGetErrorString(error);
  throw Failure(error == cudaErrorMemoryAllocation ? ExitCode::memory : ExitCode::internal, message);
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
  for (CollectiveState &state : device.collectives) {
    state.completed = makeEvent();
    state.ended = makeEvent();
  }
  device.joined = makeEvent();
  checkCuda(cudaMallocHost(reinterpret_cast<void **>(&device.indexFault), sizeof *device.indexFault), "cudaMallocHost");
  *device.indexFault = IndexFaults::none;
}

void closeDevice(Device &device) {
  for (const CollectiveState &state : device.collectives) {
    cudaEventDestroy(state.completed);
    cudaEventDestroy(state.ended);
  }
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
  const auto begin = Clock::now();
  for (;;) {
    const cudaError_t state = cudaEventQuery(event);
    if (state == cudaSuccess)
      return;
    if (state != cudaErrorNotReady)
      checkCuda(state, "a kernel of the program");
    if (device.communicators)
      device.communicators->checkErrors();
    if (std::chrono::duration<double>(Clock::now() - begin).count() > device.timeoutSeconds)
      failForTimeout(device);
    std::this_thread::sleep_for(pollInterval);
  }
}

void synchronizeCompute(const Device &device) {
  checkCuda(cudaEventRecord(device.joined, device.compute), "cudaEventRecord");
  synchronize(device, device.joined);
}

} // namespace fsdpc::rt
