// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11): random words as a pure function
// of a counter and a key. So dropout, shuffling and initial values do not depend on the order of computation or on the
// rank that computes them.
//
// Known answer (Random123, kat_vectors): counter 0, key 0 -> 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
#pragma once

#include "runtime/common/bfloat16.h"

#include <cstdint>

namespace fsdpc::rt {

struct PhiloxWords {
  std::uint32_t word[4];
};

FSDPC_HOST_DEVICE constexpr PhiloxWords philox(const std::uint32_t (&counter)[4], const std::uint32_t (&key)[2]) {
  std::uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  std::uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// Uniform in [0, 1), a multiple of 2^-24: exact in float.
FSDPC_HOST_DEVICE constexpr float uniform01(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

} // namespace fsdpc::rt
