// Random graphs: valid modules of the graph stage, and the options to train them with, from a seed.
#pragma once

#include "ir/target.h"
#include "passes/options.h"
#include "tests/random/graph_maker.h"

namespace fsdpc {

/// How a graph is trained; every field follows from the seed.
struct Choices {
  /// Batch, micro-steps, loss, optimizer, units, prefetch, what waits on the host; the strategy is the property's
  /// business.
  PipelineOptions options;
  int64_t ranks = 2;
  bool ordersSums = false; ///< the target sums over ranks in one order, with staging for it
};

struct GenerateOptions {
  bool emittable = false; ///< only what the cpu target has
  int64_t graphs = 1;     ///< side by side in one module, with one loss over all
};

Choices choose(uint64_t seed, const GenerateOptions &options);

/// The cpu target as the graph wants it.
std::unique_ptr<Target> targetOf(const Choices &choices);

/// A module of the graph stage for choices.options.graphSamples(). Over the seeds it has every op of the table that may
/// stand there; parameters that are shared, frozen, scalars or read by nobody; unused inputs; dims that divide by
/// nothing; blocks that repeat. Its numbers stay near 1 and what decides something is exact (Tensor::exact), so two
/// right evaluations differ by rounding only.
///
/// Samples do not mix, so the graph means the same however the batch is split over ranks. Names of values end in the
/// axis of their samples (tensorName).
std::unique_ptr<Module> generate(uint64_t seed, const Choices &choices, const GenerateOptions &options);

} // namespace fsdpc
