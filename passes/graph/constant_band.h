// Matrices of two numbers, one in a band around the diagonal and one elsewhere: masks that a file stores.
#pragma once

#include "ir/attributes.h"

#include <optional>

namespace fsdpc {

/// `inside` where lowest <= column - row <= highest, `outside` elsewhere.
struct ConstantBand {
  int64_t lowest, highest;
  double inside, outside;
};

/// The data are consecutive matrices of rows x columns, each the same band; nullopt if they are not.
std::optional<ConstantBand> constantBandOf(const Dense &dense, int64_t elements, int64_t rows, int64_t columns);

} // namespace fsdpc
