// Compares gradients of a compile with finite differences of the loss of the graph as generated.
#pragma once

#include "tests/random/properties.h"

namespace fsdpc {

/// Compares the train stage `train` of `graph` with the graph: loss, evaluation, and every parameter's gradient along a
/// random direction. Frozen parameters have no gradient. The points are off the grid of random_data.h, because graphs
/// compare values and have kinks on the grid.
std::optional<Violation> violationAgainstReference(const Module &graph, const Module &train, const Choices &choices,
                                                   uint64_t seed, ReferenceCounts &counts);

} // namespace fsdpc
