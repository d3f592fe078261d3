// The host's way to the arenas, its own one included: pinned buffers and copies on the compute stream, so that what is
// stored is seen by the next function and what is loaded was left by the last.
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
  /// As load, of what the pointer to device memory holds.
  const std::byte *loadFrom(const void *from, std::int64_t bytes);

  // The micro-batches of a step that is replayed. They are stored before it and wait in pinned memory, each at an
  // address of its own that stays; the step copies them from there, one after the other.

  /// Back to the first of them.
  void rewind() { nextKept = nextBatch = 0; }
  /// Keeps what `fill` stores as the next of them, as soon as the copies of the step before have been made.
  void keepBatch(const std::function<void()> &fill);
  /// Copies the next of them to where it was stored to.
  void copyBatch();

private:
  /// A pinned buffer that a copy may still be reading. It grows to the largest access, which comes with the first step.
  struct Slot {
    std::byte *data = nullptr;
    std::int64_t capacity = 0;
    cudaEvent_t copied = nullptr;
  };
  /// What was stored ahead, and where it goes.
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
  std::array<Slot, 8> slots; ///< taken in turn: a step's stores need not wait for each other
  std::size_t next = 0;
  std::array<Slot, mostFetches> pending;
  Slot loaded;
  std::deque<Kept> kept; ///< of all micro-batches; elements stay where they are
  std::vector<std::size_t> batchEnds;
  std::size_t nextKept = 0, nextBatch = 0;
  bool isKeeping = false;
};

/// Hands a parameter's tensor, which lies in device memory, to whoever has set Context::tap.
void tap(const Context &context, int parameter, const void *data, std::int64_t bytes);
/// Keeps a segment's gradient if somebody has set Context::stash, and gives it back; in the order of the compute
/// stream.
void stash(const Context &context, int segment, const void *data, std::int64_t bytes);
void unstash(const Context &context, int segment, void *data, std::int64_t bytes);

} // namespace fsdpc::rt
