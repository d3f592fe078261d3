#include "runtime/cpu/arena.h"

#include "runtime/common/failure.h"
#include "runtime/cpu/host_memory.h"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace fsdpc::rt {
namespace {

constexpr std::int64_t hugePageBytes = 2 << 20;

[[noreturn]] void refuse(std::int64_t bytes) {
  const int error = errno;
  throw Failure(ExitCode::memory, "cannot map an arena of " + describeBytes(bytes) + ": " + std::strerror(error));
}

} // namespace

Arena::Arena(Arena &&other) noexcept { *this = std::move(other); }

Arena &Arena::operator=(Arena &&other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(reservation_, other.reservation_);
  std::swap(reservationBytes_, other.reservationBytes_);
  return *this;
}

Arena::~Arena() {
  if (reservation_)
    munmap(reservation_, reservationBytes_);
}

Arena Arena::map(std::int64_t bytes, int protection, int flags, int file, std::int64_t offsetBytes) {
  Arena arena;
  if (bytes == 0)
    return arena;
  const std::int64_t pageBytes = sysconf(_SC_PAGESIZE);
  const std::int64_t alignmentBytes = bytes >= hugePageBytes ? hugePageBytes : pageBytes;
  const std::size_t reservationBytes = pageBytes + bytes + alignmentBytes + pageBytes;
  void *reservation = mmap(nullptr, reservationBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reservation == MAP_FAILED)
    refuse(bytes);
  arena.reservation_ = reservation;
  arena.reservationBytes_ = reservationBytes;
  const auto address = reinterpret_cast<std::uintptr_t>(reservation);
  const std::uintptr_t start = (address + pageBytes + alignmentBytes - 1) / alignmentBytes * alignmentBytes;
  void *data = mmap(reinterpret_cast<void *>(start), bytes, protection, flags | MAP_FIXED, file, offsetBytes);
  if (data == MAP_FAILED)
    refuse(bytes);
  arena.data_ = static_cast<std::byte *>(data);
  arena.bytes_ = bytes;
  return arena;
}

Arena Arena::mapPrivate(std::int64_t bytes) {
  Arena arena = map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  // Only advice: if the kernel has no huge pages left, small ones are also correct.
  if (bytes >= hugePageBytes)
    madvise(arena.data_, bytes, MADV_HUGEPAGE);
  return arena;
}

Arena Arena::mapShared(int file, std::int64_t offsetBytes, std::int64_t bytes, Access access) {
  return map(bytes, access == Access::readWrite ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file, offsetBytes);
}

void Arena::fillPattern() {
  for (std::int64_t i = 0; i < bytes_; ++i)
    data_[i] = arenaPattern(i);
}

std::int64_t Arena::changedBytes() const {
  std::int64_t end = bytes_;
  while (end > 0 && data_[end - 1] == arenaPattern(end - 1))
    --end;
  return end;
}

} // namespace fsdpc::rt
