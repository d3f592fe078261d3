// Fields of messages of Protocol Buffers, written by hand: programs link no protobuf.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fsdpc::rt {

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, delimited = 2, fixed32 = 5 };

inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7)
    bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

inline std::string key(std::uint32_t field, Wire wire) {
  return varint(std::uint64_t{field} << 3 | static_cast<unsigned>(wire));
}

inline std::string delimited(std::uint32_t field, std::string_view bytes) {
  return key(field, Wire::delimited) + varint(bytes.size()) + std::string(bytes);
}

} // namespace fsdpc::rt
