// The random bits of training programs. This is their definition. The runtime has a separate copy that must agree bit
// for bit.
//
// random_uniform, for element `e` (row-major, within one sample) of global sample `s` at Dropout `instance`:
//
//   key     = splitmix64(splitmix64(splitmix64(seed) ^ step) ^ instance)      64 bits
//   k0, k1  = low, high 32 bits of key
//   counter = { low32(e / 4), high32(e / 4), low32(s), high32(s) }
//   word    = philox4x32_10(counter, {k0, k1})[e % 4]
//   value   = (word >> 8) * 2^-24                                             exact in f32, in [0, 1)
//
// Nothing here depends on the world size or on the micro-batch size, so a run on 4 ranks drops the same elements as a
// run on 1 rank.
//
// Philox: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. splitmix64: Steele et al., OOPSLA
// 2014.
#pragma once

#include <array>
#include <cstdint>

namespace fsdpc {

/// One output of the splitmix64 generator whose state is x.
inline uint64_t splitmix64(uint64_t x) {
  uint64_t z = x + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    uint64_t product0 = uint64_t{0xd2511f53u} * counter[0];
    uint64_t product1 = uint64_t{0xcd9e8d57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(product0)};
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return counter;
}

inline uint64_t randomKey(uint64_t seed, uint64_t step, uint64_t instance) {
  return splitmix64(splitmix64(splitmix64(seed) ^ step) ^ instance);
}

/// The uniform value of `element` within global sample `sample` under `key`.
inline float randomUniformAt(uint64_t key, uint64_t sample, uint64_t element) {
  uint64_t block = element / 4;
  std::array<uint32_t, 4> words = philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                              static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32)},
                                             static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
  return static_cast<float>(words[element % 4] >> 8) * 0x1p-24f;
}

} // namespace fsdpc
