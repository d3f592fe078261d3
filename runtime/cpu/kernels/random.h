// Uniform random numbers as a function of position: the same for every world size and thread count.
//
// Element `e` (row-major within one sample) of global sample `s` at Dropout `instance`:
//   key     = splitmix64(splitmix64(splitmix64(seed) ^ step) ^ instance), low word first
//   counter = { low32(e / 4), high32(e / 4), low32(s), high32(s) }
//   value   = (philox(counter, key).word[e % 4] >> 8) * 2^-24
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

std::uint64_t randomKey(std::int64_t seed, std::int64_t step, std::int64_t instance);

/// out[i] = value of flat element begin + i, for i < count.
void randomUniform(int rank, const RandomShape &shape, std::uint64_t key, std::int64_t begin, std::int64_t count,
                   float *out);

} // namespace fsdpc::rt
