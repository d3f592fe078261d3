#include "runtime/cuda/device_memory.h"

#include "runtime/common/gradient_stash.h"

#include <algorithm>

namespace fsdpc::rt {

StagedMemory::StagedMemory(const Context &context) : context(context) {
  for (Slot *slot : allSlots())
    checkCuda(cudaEventCreateWithFlags(&slot->copied, cudaEventDisableTiming), "cudaEventCreate");
}

StagedMemory::~StagedMemory() {
  for (Slot *slot : allSlots()) {
    cudaEventDestroy(slot->copied);
    cudaFreeHost(slot->data);
  }
}

std::vector<StagedMemory::Slot *> StagedMemory::allSlots() {
  std::vector<Slot *> all = {&loaded};
  for (Slot &slot : pending)
    all.push_back(&slot);
  for (Slot &slot : slots)
    all.push_back(&slot);
  for (Kept &one : kept)
    all.push_back(&one.slot);
  return all;
}

void StagedMemory::reserve(Slot &slot, std::int64_t bytes) {
  if (bytes <= slot.capacity)
    return;
  checkCuda(cudaFreeHost(slot.data), "cudaFreeHost");
  slot.data = nullptr;
  checkCuda(cudaMallocHost(reinterpret_cast<void **>(&slot.data), static_cast<std::size_t>(bytes)), "cudaMallocHost");
  slot.capacity = bytes;
}

StagedMemory::Slot &StagedMemory::slotForStore() {
  if (!isKeeping)
    return slots[next];
  if (nextKept == kept.size())
    checkCuda(cudaEventCreateWithFlags(&kept.emplace_back().slot.copied, cudaEventDisableTiming), "cudaEventCreate");
  return kept[nextKept].slot;
}

std::byte *StagedMemory::stage(std::int64_t bytes) {
  Slot &slot = slotForStore();
  checkCuda(cudaEventSynchronize(slot.copied), "cudaEventSynchronize");
  reserve(slot, std::max<std::int64_t>(bytes, 64));
  return slot.data;
}

void StagedMemory::keepBatch(const std::function<void()> &fill) {
  isKeeping = true;
  fill();
  isKeeping = false;
  if (nextBatch++ == batchEnds.size())
    batchEnds.push_back(nextKept);
}

void StagedMemory::copyBatch() {
  for (const std::size_t end = batchEnds[nextBatch++]; nextKept < end; ++nextKept) {
    const Kept &one = kept[nextKept];
    checkCuda(cudaMemcpyAsync(context.at<std::byte>(one.to), one.slot.data, static_cast<std::size_t>(one.bytes),
                              cudaMemcpyHostToDevice, deviceOf(context).compute),
              "cudaMemcpyAsync");
    recordForHost(deviceOf(context), one.slot.copied, deviceOf(context).compute);
  }
}

void StagedMemory::store(Place to, std::int64_t bytes) {
  if (isKeeping) {
    kept[nextKept].to = to;
    kept[nextKept++].bytes = bytes;
    return;
  }
  Slot &slot = slots[next];
  next = (next + 1) % slots.size();
  cudaStream_t stream = deviceOf(context).compute;
  checkCuda(
      cudaMemcpyAsync(context.at<std::byte>(to), slot.data, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream),
      "cudaMemcpyAsync");
  checkCuda(cudaEventRecord(slot.copied, stream), "cudaEventRecord");
}

void StagedMemory::copyTo(Slot &slot, const void *from, std::int64_t bytes) {
  reserve(slot, std::max<std::int64_t>(bytes, 64));
  cudaStream_t stream = deviceOf(context).compute;
  checkCuda(cudaMemcpyAsync(slot.data, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream),
            "cudaMemcpyAsync");
  recordForHost(deviceOf(context), slot.copied, stream);
}

const std::byte *StagedMemory::loadFrom(const void *from, std::int64_t bytes) {
  copyTo(loaded, from, bytes);
  synchronize(deviceOf(context), loaded.copied);
  return loaded.data;
}

const std::byte *StagedMemory::fetched(std::size_t which) {
  synchronize(deviceOf(context), pending[which].copied);
  return pending[which].data;
}

const std::byte *StagedMemory::load(Place from, std::int64_t bytes) {
  return loadFrom(context.at<std::byte>(from), bytes);
}

void tap(const Context &context, int parameter, const void *data, std::int64_t bytes, const TapParts &parts) {
  context.tap->takeParts(parameter, static_cast<StagedMemory *>(context.memory)->loadFrom(data, bytes), bytes, parts);
}

void stash(const Context &context, int segment, const void *data, std::int64_t bytes) {
  if (context.stash)
    checkCuda(cudaMemcpyAsync(context.stash->of(segment), data, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost,
                              deviceOf(context).compute),
              "cudaMemcpyAsync");
}

void unstash(const Context &context, int segment, void *data, std::int64_t bytes) {
  // The gradient may still be here from before. A read that comes too early must not find it by chance.
  checkCuda(cudaMemsetAsync(data, 0xff, static_cast<std::size_t>(bytes), deviceOf(context).compute), "cudaMemsetAsync");
  checkCuda(cudaMemcpyAsync(data, context.stash->of(segment), static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                            deviceOf(context).compute),
            "cudaMemcpyAsync");
}

} // namespace fsdpc::rt
