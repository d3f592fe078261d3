#include "passes/graph/score_mask.h"

#include <cmath>
#include <limits>

namespace fsdpc {

double ScoreMask::hidden() const { return std::isinf(fill) ? fill : std::numeric_limits<float>::lowest(); }

bool isHiding(double number) {
  // Exporters write -10000, the lowest float or -infinity.
  constexpr double hidingNumber = -9999;
  return number <= hidingNumber;
}

} // namespace fsdpc
