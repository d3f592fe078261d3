// How a budget for what stays until backward is dealt out to the parts of forward.
#pragma once

#include "passes/train/saved_points.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

using PointsBySignature = llvm::StringMap<std::vector<SavedPoint>>;

/// One of its savedPoints for each run: those that take the least time together with at most the budget's bytes.
///
/// budget 0 allows what the smallest points keep on the device, 1 what keeping everything does, anything between a
/// share of the difference. The choice is a knapsack with one item of several per run, solved exactly for bytes rounded
/// up to 1/4096 of the difference (Kellerer, Pferschy, Pisinger, Knapsack Problems, 2004, section 11.5). The rounding
/// does not depend on the budget, so a larger one never takes more time. `points` holds what the choices point to;
/// equal runs share an entry.
std::vector<const SavedPoint *> choosePoints(llvm::ArrayRef<ForwardRun> runs, const Target &target, double budget,
                                             PointsBySignature &points);

} // namespace fsdpc
