// Dropout in other spellings than the op: stochastic depth, dropout of channels, masks drawn by hand.
#pragma once

#include "ir/module.h"

namespace fsdpc {

/// Finds what multiplies by a random mask and divides by the rate of its ones:
///   x * (m / p), (x / p) * m, (x * m) / p, where(m, x / p, 0)
/// with m = u < p, u >= 1 - p, floor(u + p), or Bernoulli(p), u uniform in [0, 1), drawn in x's shape or one that
/// broadcasts to it. If `isActive`, it becomes what the import makes of the op Dropout, which evaluation turns off and
/// whose numbers follow the sample; else x, as in evaluation. Without the division only in a module whose class says so
/// (Drop..., StochasticDepth, from Module::classes), and only if not active: else a mask without it is part of what the
/// author computes. Masks that anything else reads stay as they are. What is left unused stays in the function.
void recognizeDrawnMasks(Function &forward, bool isActive);

/// The nodes of the file that draw random numbers, in order, each once.
std::vector<std::string> drawingNodes(const Function &forward);

} // namespace fsdpc
