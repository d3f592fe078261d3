// A 64-bit hash that distinguishes executables, collectives and the bits of results. Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fsdpc::rt {

/// Order matters: each value is mixed with all values before it (the finalizer of MurmurHash3 over a running sum).
class Fingerprint {
public:
  Fingerprint &add(std::uint64_t value) {
    state += value + 0x9E3779B97F4A7C15u;
    state ^= state >> 33;
    state *= 0xFF51AFD7ED558CCDu;
    state ^= state >> 33;
    state *= 0xC4CEB9FE1A85EC53u;
    state ^= state >> 33;
    return *this;
  }
  Fingerprint &addBytes(const void *data, std::int64_t bytes) {
    const auto *at = static_cast<const std::byte *>(data);
    add(static_cast<std::uint64_t>(bytes));
    // Four independent sums, so that the core never waits for its multiplier.
    std::uint64_t lanes[4] = {1, 2, 3, 4};
    for (; bytes >= 32; bytes -= 32, at += 32) {
      std::uint64_t words[4];
      std::memcpy(words, at, sizeof words);
      for (int i = 0; i < 4; ++i) {
        lanes[i] = (lanes[i] ^ words[i]) * 0x9FB21C651E98DF25u;
        lanes[i] ^= lanes[i] >> 29;
      }
    }
    for (const std::uint64_t lane : lanes)
      add(lane);
    for (; bytes > 0; bytes -= 8, at += 8) {
      std::uint64_t rest = 0;
      std::memcpy(&rest, at, static_cast<std::size_t>(bytes < 8 ? bytes : 8));
      add(rest);
    }
    return *this;
  }
  std::uint64_t value() const { return state; }

private:
  std::uint64_t state = 0;
};

} // namespace fsdpc::rt
