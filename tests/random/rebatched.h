// The same graph for another number of samples per rank.
#pragma once

#include "ir/module.h"

namespace fsdpc {

/// A copy of a generated module of the graph stage (generate.h), reduced or not, whose batch is `factor` times as
/// large. Null if a shape rule rejects it, which is possible for a reduced module.
std::unique_ptr<Module> rebatched(const Module &graph, int64_t factor);

} // namespace fsdpc
