// Properties that must hold for every random graph, and their checks.
#pragma once

#include "ir/target.h"
#include "tests/random/random_data.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

/// A property that does not hold. Graphs are reduced as long as the property stays the same.
struct Violation {
  std::string property; ///< see README.md, followed by the first letters of an error
  std::string details;
};

/// The results of training.
struct Outcome {
  double loss = 0;
  Tensors gradients, parameters, evaluation;
};

/// Compiled stages of a module.
struct Compiled {
  std::map<Stage, std::unique_ptr<Module>> stages; ///< from train on, each read back from its text
  std::string unreadable;                          ///< the first stage whose text reads back as another module
  std::vector<std::string> remarks;
};

/// `atGraph` may change the units before the graph becomes a training step.
llvm::Expected<Compiled> compileStages(const Module &graph, const PipelineOptions &options, const Target &target,
                                       Stage last, llvm::function_ref<void(Module &)> atGraph = nullptr);

/// Training steps on the ranks of `module`'s mesh, and an evaluation of the trained parameters. Gradients are those of
/// the first step, the loss is that of the last.
llvm::Expected<Outcome> train(const Module &module, const Tensors &batch, uint64_t seed, int steps);

/// max |a - b| over all quantities, each relative to its tensor's scale, which counts as at least 1e-4 of the largest
/// tensor's, and the name of the worst one. Infinite if a quantity is missing from either.
struct Deviation {
  double worst = 0;
  std::string where;
};
Deviation deviation(const Outcome &actual, const Outcome &expected);

std::unique_ptr<Module> copyOf(const Module &module);

/// Totals, over all graphs, of the comparison with the graph before any pass.
struct ReferenceCounts {
  int64_t slopes = 0;       ///< gradients of a parameter that were compared
  int64_t redrawn = 0;      ///< of these, at another point, because the loss has a kink or a step at the first one
  int64_t atKinks = 0;      ///< gradients that were not compared, because the loss has a kink or a step at every point
  int64_t notRebatched = 0; ///< graphs without a reference (GraphReference::make)
};

/// Totals over all graphs.
struct Tally {
  llvm::StringSet<> drawn, reached; ///< names of ops: in graphs as generated, in any stage
  ReferenceCounts reference;
};

/// The number of placements of the units to check a graph with.
constexpr size_t everyPlacement = ~size_t{0};

/// The first property that the graph violates. Tries full_shard and `placements` others, drawn from the seed.
std::optional<Violation> violationOf(const Module &graph, const Choices &choices, uint64_t seed, const Target &target,
                                     Tally &tally, size_t placements = everyPlacement);

} // namespace fsdpc
