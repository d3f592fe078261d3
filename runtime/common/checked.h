// Overflow-checked arithmetic on numbers read from files.
#pragma once

#include "runtime/common/failure.h"

#include <cstdint>

namespace fsdpc::rt {

/// Returns a * b. Throws Failure{corrupt} with `what` if the result does not fit or an operand is negative.
inline std::int64_t checkedMultiply(std::int64_t a, std::int64_t b, const std::string &what) {
  std::int64_t product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product))
    throw Failure(ExitCode::corrupt, what + ": size overflows");
  return product;
}

/// Returns a + b. Throws as above.
inline std::int64_t checkedAdd(std::int64_t a, std::int64_t b, const std::string &what) {
  std::int64_t sum = 0;
  if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum))
    throw Failure(ExitCode::corrupt, what + ": size overflows");
  return sum;
}

} // namespace fsdpc::rt
