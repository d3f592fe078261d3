// One mapped arena: exactly the memory that the plan lays out.
//
// An arena starts on a page boundary (on 2 MiB if it is that large, so that the kernel may back it with huge pages), is
// zero-filled, and is between two inaccessible guard pages: an overrun at either end faults immediately. Guards and
// alignment take address space but no memory; an arena maps `bytes`.
//
// The test build fills arenas with a pattern before the program starts. At the end, the highest byte without the
// pattern shows how much memory the program needed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fsdpc::rt {

class Arena {
public:
  enum class Access : std::uint8_t { readOnly, readWrite };

  Arena() = default;
  Arena(Arena &&other) noexcept;
  Arena &operator=(Arena &&other) noexcept;
  ~Arena();

  /// Maps memory of this process only. `bytes` is a multiple of the page size; 0 gives an empty arena (data() is null).
  /// Throws Failure{memory} if the kernel refuses.
  static Arena mapPrivate(std::int64_t bytes);
  /// Maps [offsetBytes, offsetBytes + bytes) of a file or shared memory object; both are multiples of the page size.
  /// The memory of the file must already be reserved (WindowStore::reserve), otherwise touching a page may raise
  /// SIGBUS.
  static Arena mapShared(int file, std::int64_t offsetBytes, std::int64_t bytes, Access access);

  std::byte *data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

  /// Writes the pattern to every byte.
  void fillPattern();
  /// Returns 1 + the offset of the highest byte that does not have the pattern, and 0 if all have it. A byte may by
  /// chance have been set to the value of the pattern there (1 in 256).
  std::int64_t changedBytes() const;

private:
  static Arena map(std::int64_t bytes, int protection, int flags, int file, std::int64_t offsetBytes);

  std::byte *data_ = nullptr;
  std::int64_t bytes_ = 0;
  void *reservation_ = nullptr;
  std::size_t reservationBytes_ = 0;
};

/// The pattern: 0xA5 at the start, never equal in neighbouring bytes nor periodic in small powers of two. As f32 or f64
/// the values are large and irregular, so reads of uninitialized memory are noticed.
constexpr std::byte arenaPattern(std::int64_t offsetBytes) {
  const auto i = static_cast<std::uint64_t>(offsetBytes);
  return static_cast<std::byte>(0xA5u ^ ((i * 0x1D) & 0xFF) ^ ((i >> 8) * 0x35 & 0xFF));
}

} // namespace fsdpc::rt
