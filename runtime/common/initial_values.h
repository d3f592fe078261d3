// Random initial values: a pure function of seed, parameter name and element. So every rank creates only its own shard,
// and every world size and strategy starts from the same values.
//
//   key     = splitmix64(splitmix64(seed) ^ fnv1a64(name))                 64 bits: low, high
//   counter = { low32(e / 4), high32(e / 4), 0x696e6974, 0 }              e: element, row-major in the parameter
//   u(e)    = (philox(counter, key).word[e % 4] + 0.5) * 2^-32            in (0, 1), exact in double
//   uniform   first + (second - first) * u(e)
//   normal    first + second * r * cos(2 pi v) for even e, ... sin(2 pi v) for odd e,
//             where with the pair's even element p
//             r = sqrt(-2 log u(p)), v = u(p + 1)                         (Box and Muller)
//
// Values are computed in double and rounded to the parameter's type, then to that of the copy. All operations except
// log, cos and sin are exact or correctly rounded, so the bits agree wherever those functions of the C library agree.
#pragma once

#include "runtime/common/program.h"

namespace fsdpc::rt {

/// Draws the initial values of elements [firstElement, firstElement + elements) of a parameter, rounded to its type and
/// stored as `dtype`, which is a float type.
void drawRange(const ParameterInfo &parameter, std::uint64_t seed, std::int64_t firstElement, std::int64_t elements,
               DType dtype, std::byte *to);

} // namespace fsdpc::rt
