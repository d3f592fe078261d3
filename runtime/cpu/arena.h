// One mapped arena: the memory that the plan lays out, and nothing else.
//
// An arena starts on a page (on 2 MiB if it is that large, so that the kernel may back it with huge pages), is
// zero-filled, and lies between two pages that may not be touched: running over either end faults at once. The guards
// and the alignment are addresses without memory; what an arena maps is `bytes`.
//
// The test build fills arenas with a pattern before the program starts; at the end the highest byte that no longer has
// it shows how much the program needed.
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

  /// Memory of this process only. `bytes` is a multiple of the page; 0 gives an empty arena (data() is null).
  /// Throws Failure{memory} if the kernel refuses.
  static Arena mapPrivate(std::int64_t bytes);
  /// [offsetBytes, offsetBytes + bytes) of a file or shared memory object; both multiples of the page. The file must
  /// already have its memory (WindowStore::reserve), otherwise touching a page may raise SIGBUS.
  static Arena mapShared(int file, std::int64_t offsetBytes, std::int64_t bytes, Access access);

  std::byte *data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

  /// Writes the pattern to every byte.
  void fillPattern();
  /// 1 + the offset of the highest byte that does not have the pattern; 0 if all have it. A byte may by chance
  /// have been changed to the value the pattern has there (1 in 256).
  std::int64_t changedBytes() const;

private:
  static Arena map(std::int64_t bytes, int protection, int flags, int file, std::int64_t offsetBytes);

  std::byte *data_ = nullptr;
  std::int64_t bytes_ = 0;
  void *reservation_ = nullptr;
  std::size_t reservationBytes_ = 0;
};

/// The pattern: 0xA5 at the start, never equal in neighbouring bytes nor periodic in small powers of two. As f32 or f64
/// the values are large and irregular, so reading what was never written shows.
constexpr std::byte arenaPattern(std::int64_t offsetBytes) {
  const auto i = static_cast<std::uint64_t>(offsetBytes);
  return static_cast<std::byte>(0xA5u ^ ((i * 0x1D) & 0xFF) ^ ((i >> 8) * 0x35 & 0xFF));
}

} // namespace fsdpc::rt
