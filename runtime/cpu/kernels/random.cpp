#include "runtime/cpu/kernels/random.h"

#include "runtime/common/philox.h"

#include <algorithm>

namespace fsdpc::rt {

namespace {

constexpr int lanes = 16;

/// Computes elements 4 * firstBlock .. 4 * (firstBlock + lanes) of one sample.
void randomBlocks(std::uint64_t key, std::uint64_t sample, std::uint64_t firstBlock, float *out) {
  std::uint32_t c0[lanes], c1[lanes], c2[lanes], c3[lanes];
  for (int i = 0; i < lanes; ++i) {
    c0[i] = static_cast<std::uint32_t>(firstBlock + i);
    c1[i] = static_cast<std::uint32_t>((firstBlock + i) >> 32);
    c2[i] = static_cast<std::uint32_t>(sample);
    c3[i] = static_cast<std::uint32_t>(sample >> 32);
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
#pragma omp simd
    for (int i = 0; i < lanes; ++i) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0[i];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2[i];
      c0[i] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<std::uint32_t>(p1);
      c2[i] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<std::uint32_t>(p0);
    }
  }
  for (int i = 0; i < lanes; ++i) {
    out[4 * i] = uniform01(c0[i]);
    out[4 * i + 1] = uniform01(c1[i]);
    out[4 * i + 2] = uniform01(c2[i]);
    out[4 * i + 3] = uniform01(c3[i]);
  }
}

/// Computes elements [begin, begin + count) of one sample.
void randomRun(std::uint64_t key, std::uint64_t sample, std::int64_t begin, std::int64_t count, float *out) {
  constexpr std::int64_t width = 4 * lanes;
  float buffer[width];
  while (count > 0) {
    const std::int64_t skipped = begin % 4;
    const std::int64_t taken = std::min(count, width - skipped);
    const bool whole = taken == width;
    randomBlocks(key, sample, static_cast<std::uint64_t>(begin / 4), whole ? out : buffer);
    if (!whole)
      std::memcpy(out, buffer + skipped, sizeof(float) * taken);
    begin += taken;
    out += taken;
    count -= taken;
  }
}

std::uint64_t splitmix64(std::uint64_t x) {
  std::uint64_t z = x + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

} // namespace

std::uint64_t randomKey(std::int64_t seed, std::int64_t step, std::int64_t instance) {
  const auto word = [](std::int64_t x) { return static_cast<std::uint64_t>(x); };
  return splitmix64(splitmix64(splitmix64(word(seed)) ^ word(step)) ^ word(instance));
}

void randomUniform(int rank, const RandomShape &shape, std::uint64_t key, std::int64_t begin, std::int64_t count,
                   float *out) {
  while (count > 0) {
    const std::int64_t inner = begin % shape.inner, row = begin / shape.inner;
    const std::int64_t taken = std::min(count, shape.inner - inner);
    const std::int64_t sample = rank * shape.rankSamples + shape.firstSample + row % shape.samples;
    randomRun(key, static_cast<std::uint64_t>(sample), row / shape.samples * shape.inner + inner, taken, out);
    begin += taken;
    out += taken;
    count -= taken;
  }
}

} // namespace fsdpc::rt
