// The host's way to the arenas, its own one included: pinned buffers and copies on the compute stream, so that what is
// stored is seen by the next function and what is loaded was left by the last.
#pragma once

#include "runtime/cuda/device.h"

#include <array>
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

private:
  /// A pinned buffer that a copy may still be reading. It grows to the largest access, which comes with the first step.
  struct Slot {
    std::byte *data = nullptr;
    std::int64_t capacity = 0;
    cudaEvent_t copied = nullptr;
  };
  std::vector<Slot *> allSlots();
  static void reserve(Slot &slot, std::int64_t bytes);
  void copyTo(Slot &slot, const void *from, std::int64_t bytes);

  const Context &context;
  std::array<Slot, 8> slots; ///< taken in turn: a step's stores need not wait for each other
  std::size_t next = 0;
  std::array<Slot, mostFetches> pending;
  Slot loaded;
};

/// Hands a parameter's tensor, which lies in device memory, to whoever has set Context::tap.
void tap(const Context &context, int parameter, const void *data, std::int64_t bytes);
/// Keeps a segment's gradient if somebody has set Context::stash, and gives it back; in the order of the compute
/// stream.
void stash(const Context &context, int segment, const void *data, std::int64_t bytes);
void unstash(const Context &context, int segment, void *data, std::int64_t bytes);

} // namespace fsdpc::rt
