// Random graphs: valid modules of the graph stage, and the options to train them with, from a seed.
#pragma once

#include "ir/target.h"
#include "passes/options.h"
#include "tests/random/graph_maker.h"

namespace fsdpc {

/// How a graph is trained; every field follows from the seed.
struct Choices {
  /// Batch, micro-steps, loss, optimizer, units, prefetch, offload to the host. The strategy depends on the property.
  PipelineOptions options;
  int64_t ranks = 2;
  bool ordersSums = false; ///< the target sums over ranks in one order, with staging for it
};

struct GenerateOptions {
  bool emittable = false; ///< only what the cpu target has
  int64_t graphs = 1;     ///< independent graphs in one module, with one loss over all
};

/// Whether the value depends on an argument of its function.
bool readsInput(const Value *value);

Choices choose(uint64_t seed, const GenerateOptions &options);

/// The cpu target with the options that the graph needs.
std::unique_ptr<Target> targetOf(const Choices &choices);

/// A module of the graph stage for choices.options.graphSamples(). Over all seeds, modules have every op of the table
/// that is allowed in that stage, parameters that are shared, frozen, scalar or unused, unused inputs, dims that divide
/// by nothing, and blocks that repeat. Values stay near 1, and values that decisions depend on are exact
/// (Tensor::exact), so two correct evaluations differ by rounding only.
///
/// Samples do not mix, so the results do not depend on how the batch is split over ranks. Names of values end in the
/// axis of their samples (tensorName).
std::unique_ptr<Module> generate(uint64_t seed, const Choices &choices, const GenerateOptions &options);

} // namespace fsdpc
