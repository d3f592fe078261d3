// Ranks of one small program on the emulated device; collectives_test.cpp has its side table.
#pragma once

#include "runtime/cuda/collectives.h"
#include "runtime/cuda/device_progress.h"
#include "runtime/cuda/nccl_communicators.h"
#include "tests/emulated/ranks.h"

#include <memory>

namespace fsdpc::rt {

/// The groups of axis 0 are adjacent ranks, those of axis 1 are two ranks apart.
inline constexpr MeshAxisInfo axes[] = {{"shard", 2, 1}, {"replicate", 2, 2}};
inline constexpr std::int64_t windowElements = 64;
/// Limits for what tests capture as one step.
inline constexpr std::size_t maxMicroSteps = 2, maxSections = 8;

/// A rank with its device, window and communicators.
struct Member {
  Device device;
  Context context;
  ProgramInfo program{};
  std::unique_ptr<NcclCommunicators> communicators;
  Pulse pulse;
  std::unique_ptr<DeviceProgress> progress;

  Member(const emulated::Rank &rank, const ncclUniqueId &id) : pulse(rank.rank) {
    program.worldSize = rank.size;
    program.axes = axes;
    openDevice(device, programCollectives().size());
    progress = std::make_unique<DeviceProgress>(&pulse, maxMicroSteps * programCollectives().size(), maxSections);
    device.progress = progress.get();
    void *window = nullptr;
    checkNccl(ncclMemAlloc(&window, windowElements * sizeof(float)), "ncclMemAlloc");
    context.windowArena = static_cast<std::byte *>(window);
    context.rank = rank.rank;
    context.worldSize = rank.size;
    context.target = &device;
    communicators = std::make_unique<NcclCommunicators>(program, rank.rank, id, window, windowElements * sizeof(float));
    device.communicators = communicators.get();
  }
  ~Member() {
    communicators.reset();
    ncclMemFree(context.windowArena);
    progress.reset();
    closeDevice(device);
  }
  float *at(std::int64_t element) { return f32(context, place(element)); }
  static Place place(std::int64_t element) { return W + element * static_cast<std::int64_t>(sizeof(float)); }
  /// Sets values on the compute stream, as a kernel would.
  void set(std::int64_t element, const std::vector<float> &values) {
    emulated::Device::instance().enqueue(*device.compute,
                                         {[to = at(element), values] { std::copy(values.begin(), values.end(), to); }});
  }
  std::vector<float> read(std::int64_t element, std::size_t count) {
    std::vector<float> values(count);
    emulated::Device::instance().enqueue(
        *device.compute, {[from = at(element), &values] { std::copy_n(from, values.size(), values.begin()); }});
    synchronizeCompute(device);
    return values;
  }
};

inline void runMembers(int size, const std::function<void(Member &)> &body) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  emulated::runRanks(size, [&](const emulated::Rank &rank) {
    Member member(rank, id);
    body(member);
  });
}

} // namespace fsdpc::rt
