// Recognizes dropout that is not written as the op: stochastic depth, dropout of channels, hand-drawn masks.
#pragma once

#include "ir/module.h"

namespace fsdpc {

/// Finds values that are multiplied by a random mask and divided by the rate of its ones:
///   x * (m / p), (x / p) * m, (x * m) / p, where(m, x / p, 0)
/// with m = u < p, u >= 1 - p, floor(u + p), or Bernoulli(p), u uniform in [0, 1), drawn in x's shape or one that
/// broadcasts to it. If `isActive`, the value is rewritten to the form that the import gives the op Dropout, which
/// evaluation turns off and whose random numbers follow the sample. Otherwise it is replaced by x, as in evaluation. A
/// mask without the division is replaced only in a module whose class is a dropout (Drop..., StochasticDepth, from
/// Module::classes), and only if not `isActive`: elsewhere it is part of the author's computation. Masks with other
/// readers stay as they are. Nodes without uses are left in the function.
void recognizeDrawnMasks(Function &forward, bool isActive);

/// The names of the file's nodes that draw random numbers, in order, each once.
std::vector<std::string> drawingNodes(const Function &forward);

} // namespace fsdpc
