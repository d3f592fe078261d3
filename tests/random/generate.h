// Random graphs: valid modules of the graph stage, and the options to train them with, from a seed.
#pragma once

#include "passes/options.h"
#include "tests/random/graph_maker.h"

namespace fsdpc {

/// How a graph is trained; every field follows from the seed.
struct Choices {
  PipelineOptions options; ///< batch, loss, optimizer, units, prefetch; the strategy is the property's business
  int64_t ranks = 2;
};

struct GenerateOptions {
  bool emittable = false; ///< only what the cpu target has
  int64_t graphs = 1;     ///< side by side in one module, with one loss over all
};

Choices choose(uint64_t seed, const GenerateOptions &options);

/// A module of the graph stage for choices.options.microBatchSize. Over the seeds it has every op of the table that may
/// stand there; parameters that are shared, frozen, scalars or read by nobody; unused inputs; dims that divide by
/// nothing; blocks that repeat. Its numbers stay near 1 and what decides something is exact (Tensor::exact), so two
/// right evaluations differ by rounding only.
///
/// Samples do not mix, so the graph means the same however the batch is split over ranks. Names of values end in the
/// axis of their samples (tensorName).
std::unique_ptr<Module> generate(uint64_t seed, const Choices &choices, const GenerateOptions &options);

} // namespace fsdpc
