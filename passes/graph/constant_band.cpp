#include "passes/graph/constant_band.h"

#include <algorithm>

namespace fsdpc {

std::optional<ConstantBand> constantBandOf(const Dense &dense, int64_t elements, int64_t rows, int64_t columns) {
  if (elements == 0 || dense.isSplat() || rows * columns == 0)
    return std::nullopt;
  ConstantBand band{0, 0, dense.at(0), dense.at(0)};
  const auto distanceOf = [&](int64_t i) { return i % columns - i / columns % rows; };
  for (int64_t i = 0; i < elements; ++i) {
    if (dense.at(i) != band.inside)
      continue;
    band.lowest = std::min(band.lowest, distanceOf(i));
    band.highest = std::max(band.highest, distanceOf(i));
  }
  bool hasOutside = false;
  for (int64_t i = 0; i < elements; ++i) {
    const bool isInside = distanceOf(i) >= band.lowest && distanceOf(i) <= band.highest;
    if (!isInside && !hasOutside) {
      band.outside = dense.at(i);
      hasOutside = true;
    }
    if (dense.at(i) != (isInside ? band.inside : band.outside))
      return std::nullopt;
  }
  return band;
}

} // namespace fsdpc
