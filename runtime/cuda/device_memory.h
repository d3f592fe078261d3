// The host's access to the arenas, including the host's own: pinned buffers and copies on the compute stream. The next
// function sees what is stored, and loads return what the last one left.
#pragma once

#include "runtime/cuda/device.h"

#include <array>
#include <deque>
#include <functional>
#include <vector>

namespace fsdpc::rt {

class StagedMemory final : public DeviceMemory {
public:
  explicit StagedMemory(const Context &context);
  ~StagedMemory() override;

  std::byte *stage(std::int64_t bytes) override;
  void store(Place to, std::int64_t bytes) override;
  const std::byte *load(Place from, std::int64_t bytes) override;
  void fetch(Place from, std::int64_t bytes, std::size_t which = 0) override {
    copyTo(pending[which], context.at<std::byte>(from), bytes);
  }
  const std::byte *fetched(std::size_t which = 0) override;
  /// As load, from a pointer to device memory.
  const std::byte *loadFrom(const void *from, std::int64_t bytes);

  // The micro-batches of a replayed step. They are stored before the step, in pinned memory, each at its own fixed
  // address. The step copies them from there in turn.

  /// Back to the first micro-batch.
  void rewind() { nextKept = nextBatch = 0; }
  /// Keeps what `fill` stores as the next micro-batch, once the previous step's copies are complete.
  void keepBatch(const std::function<void()> &fill);
  /// Copies the next micro-batch to where it was stored to.
  void copyBatch();

private:
  /// A pinned buffer that a copy may still be reading. It grows to the largest access, which comes with the first step.
  struct Slot {
    std::byte *data = nullptr;
    std::int64_t capacity = 0;
    cudaEvent_t copied = nullptr;
  };
  /// Bytes stored ahead, and their destination.
  struct Kept {
    Slot slot;
    Place to;
    std::int64_t bytes = 0;
  };
  std::vector<Slot *> allSlots();
  Slot &slotForStore();
  static void reserve(Slot &slot, std::int64_t bytes);
  void copyTo(Slot &slot, const void *from, std::int64_t bytes);

  const Context &context;
  std::array<Slot, 8> slots; ///< used in turn, so that a step's stores need not wait for each other
  std::size_t next = 0;
  std::array<Slot, maxFetches> pending;
  Slot loaded;
  std::deque<Kept> kept; ///< of all micro-batches; a deque, so elements keep their addresses
  std::vector<std::size_t> batchEnds;
  std::size_t nextKept = 0, nextBatch = 0;
  bool isKeeping = false;
};

/// Passes a parameter's tensor, or parts of it, which are in device memory, to Context::tap.
void tap(const Context &context, int parameter, const void *data, std::int64_t bytes, const TapParts &parts = {});
/// Keeps a segment's gradient if Context::stash is set, and restores it, both in compute stream order.
void stash(const Context &context, int segment, const void *data, std::int64_t bytes);
void unstash(const Context &context, int segment, void *data, std::int64_t bytes);

} // namespace fsdpc::rt
