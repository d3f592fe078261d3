// Distributes the budget for values kept until backward over the regions of forward.
#pragma once

#include "passes/train/saved_points.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

using PointsBySignature = llvm::StringMap<std::vector<SavedPoint>>;

/// One of its savedPoints for each region: the combination with the least time within the budget's bytes.
///
/// Budget 0 allows the bytes that the smallest points keep on the device, 1 those of keeping everything, and values
/// between interpolate. The choice is a knapsack with one item of several per region, solved exactly for bytes rounded
/// up to 1/4096 of the difference (Kellerer, Pferschy, Pisinger, Knapsack Problems, 2004, section 11.5). The rounding
/// does not depend on the budget, so a larger one never takes more time. `points` owns the points; equal regions share
/// an entry.
std::vector<const SavedPoint *> choosePoints(llvm::ArrayRef<ForwardRegion> runs, const Target &target, double budget,
                                             PointsBySignature &points);

} // namespace fsdpc
