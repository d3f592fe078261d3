// Uniform random numbers as a function of position, bitwise identical to those of the cpu target
// (runtime/cpu/kernels/random.h has the definition), whatever the world size, the launch geometry or the order of the
// threads.
//
// A number is computed where it is used, inside a generated kernel, so there is nothing to launch. A Philox block of
// four words costs some hundred integer instructions and serves the four elements of a pack. An element that is
// computed alone uses one word of its block.
#pragma once

#include "runtime/common/kernel_shapes.h"
#include "runtime/common/philox.h"
#include "runtime/cuda/kernels/pack.h"

#include <cuda_runtime.h>

#include <cstdint>

namespace fsdpc::rt {

/// One output of the splitmix64 generator whose state is x.
FSDPC_HOST_DEVICE inline std::uint64_t splitmix64(std::uint64_t x) {
  std::uint64_t z = x + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// The key of one Dropout (or other source of random numbers) in one step. It is the same for all elements, so a thread
/// computes it once, before its loop.
FSDPC_HOST_DEVICE inline std::uint64_t randomKey(std::int64_t seed, std::int64_t step, std::int64_t instance) {
  const std::uint64_t ofSeed = splitmix64(static_cast<std::uint64_t>(seed));
  return splitmix64(splitmix64(ofSeed ^ static_cast<std::uint64_t>(step)) ^ static_cast<std::uint64_t>(instance));
}

/// The position of an element's number.
struct RandomPlace {
  PhiloxWords block;
  std::uint64_t element; ///< index within its sample
};

/// For element `flatElement` (row-major) of the tensor that `shape` describes, on rank `rank`.
__device__ inline RandomPlace randomPlaceOf(int rank, const RandomShape &shape, std::uint64_t key,
                                            std::int64_t flatElement) {
  const std::int64_t row = flatElement / shape.inner, outer = row / shape.samples;
  const std::int64_t sampleOfRank = shape.firstSample + (row - outer * shape.samples);
  const std::uint64_t sample = static_cast<std::uint64_t>(rank * shape.rankSamples + sampleOfRank);
  const std::uint64_t element = static_cast<std::uint64_t>(outer * shape.inner + (flatElement - row * shape.inner));
  const std::uint32_t counter[4] = {static_cast<std::uint32_t>(element / 4),
                                    static_cast<std::uint32_t>(element / 4 >> 32), static_cast<std::uint32_t>(sample),
                                    static_cast<std::uint32_t>(sample >> 32)};
  const std::uint32_t words[2] = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
  return {philox(counter, words), element};
}

__device__ inline float randomUniformAt(int rank, const RandomShape &shape, std::uint64_t key,
                                        std::int64_t flatElement) {
  const auto [block, element] = randomPlaceOf(rank, shape, key, flatElement);
  // Not word[element % 4]: an index known only at run time would move the block to local memory.
  const std::uint32_t low = element & 1 ? block.word[1] : block.word[0];
  const std::uint32_t high = element & 1 ? block.word[3] : block.word[2];
  return uniform01(element & 2 ? high : low);
}

/// For `width` elements from `flatElement` on, both multiples of 4, as `shape.inner` must be.
template <int width>
__device__ Pack<float, width> randomUniformPack(int rank, const RandomShape &shape, std::uint64_t key,
                                                std::int64_t flatElement) {
  static_assert(width % 4 == 0);
  Pack<float, width> numbers;
  for (int first = 0; first < width; first += 4) {
    const PhiloxWords block = randomPlaceOf(rank, shape, key, flatElement + first).block;
    for (int i = 0; i < 4; ++i)
      numbers.values[first + i] = uniform01(block.word[i]);
  }
  return numbers;
}

} // namespace fsdpc::rt
