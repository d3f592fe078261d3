#include "tests/gpu/kernels/pinned_heap.h"

#include <cuda_runtime.h>

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory_resource>
#include <new>

namespace fsdpc::gpu {
namespace {

/// Space before every block, enough for any alignment used here.
constexpr std::size_t headerBytes = 256;

struct Header {
  std::size_t bytes; ///< of the block with its header
  bool isPinned;
};
static_assert(sizeof(Header) <= headerBytes);

[[noreturn]] void fail(const char *what, cudaError_t error) {
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}

void *pinned(std::size_t bytes) {
  void *memory = nullptr;
  if (const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable))
    fail("cudaHostAlloc", error);
  return memory;
}

/// Slices of one allocation made at the start: `new` is also called within CUDA's libraries, where the driver should
/// not be asked for memory. Freed memory is not reused; the pool above keeps small blocks.
class PinnedMemory final : public std::pmr::memory_resource {
  void *do_allocate(std::size_t bytes, std::size_t alignment) override {
    const std::size_t end = taken += bytes + alignment;
    if (end > wholeBytes)
      return pinned(bytes);
    return whole + (end - bytes) / alignment * alignment;
  }
  void do_deallocate(void *, std::size_t, std::size_t) override {}
  bool do_is_equal(const memory_resource &other) const noexcept override { return this == &other; }

  static constexpr std::size_t wholeBytes = std::size_t{2} << 30;
  std::byte *const whole = static_cast<std::byte *>(pinned(wholeBytes));
  std::atomic<std::size_t> taken = 0;
};

std::atomic<bool> usesPinned = false;

std::pmr::memory_resource &pinnedPool() {
  static PinnedMemory &pages = *new PinnedMemory; // outlives every static that frees
  static std::pmr::synchronized_pool_resource &pool =
      *new std::pmr::synchronized_pool_resource({.largest_required_pool_block = std::size_t{1} << 22}, &pages);
  return pool;
}

void *take(std::size_t bytes) {
  const std::size_t whole = bytes + headerBytes;
  const bool isPinned = usesPinned.load();
  void *const block = isPinned ? pinnedPool().allocate(whole, headerBytes)
                               : std::aligned_alloc(headerBytes, (whole + headerBytes - 1) / headerBytes * headerBytes);
  if (!block)
    std::abort();
  new (block) Header{whole, isPinned};
  return static_cast<std::byte *>(block) + headerBytes;
}

void giveBack(void *memory) {
  if (!memory)
    return;
  void *const block = static_cast<std::byte *>(memory) - headerBytes;
  const Header header = *static_cast<const Header *>(block);
  if (header.isPinned)
    pinnedPool().deallocate(block, header.bytes, headerBytes);
  else
    std::free(block);
}

} // namespace

void usePinnedHeap() {
  pinnedPool(); // its own objects are not pinned
  usesPinned = true;
}

void runOnPinnedStack(std::size_t stackBytes, const std::function<void()> &body) {
  void *const stack = pinned(stackBytes);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, stackBytes);
  const auto call = [](void *function) -> void * {
    (*static_cast<const std::function<void()> *>(function))();
    return nullptr;
  };
  pthread_t thread;
  if (pthread_create(&thread, &attributes, call, const_cast<std::function<void()> *>(&body)) != 0)
    std::abort();
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  cudaFreeHost(stack);
}

} // namespace fsdpc::gpu

void *operator new(std::size_t bytes) { return fsdpc::gpu::take(bytes); }
void *operator new(std::size_t bytes, std::align_val_t alignment) {
  if (static_cast<std::size_t>(alignment) > fsdpc::gpu::headerBytes)
    std::abort();
  return fsdpc::gpu::take(bytes);
}
void operator delete(void *memory) noexcept { fsdpc::gpu::giveBack(memory); }
void operator delete(void *memory, std::size_t) noexcept { fsdpc::gpu::giveBack(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { fsdpc::gpu::giveBack(memory); }
void operator delete(void *memory, std::size_t, std::align_val_t) noexcept { fsdpc::gpu::giveBack(memory); }
