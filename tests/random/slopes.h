// Gradients of a compile against differences of the losses that the graph as generated has.
#pragma once

#include "tests/random/properties.h"

namespace fsdpc {

/// The train stage `train` of `graph` against the graph: loss, evaluation, every parameter's gradient along a random
/// direction; parameters that are frozen have none. At points that lie off the grid of random_data.h, since that is
/// where graphs compare numbers and have kinks.
std::optional<Violation> violationAgainstReference(const Module &graph, const Module &train, const Choices &choices,
                                                   uint64_t seed, ReferenceCounts &counts);

} // namespace fsdpc
