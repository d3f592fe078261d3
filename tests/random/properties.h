// What must hold of every random graph, and how to find out.
#pragma once

#include "ir/target.h"
#include "tests/random/random_data.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

/// A property that does not hold. Graphs are reduced as long as the property stays the same.
struct Violation {
  std::string property; ///< README.md; an error's first letters behind it
  std::string details;
};

/// What one step leaves behind.
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
/// tensor's; the worst one's name. Infinite where one has what the other lacks.
struct Deviation {
  double worst = 0;
  std::string where;
};
Deviation deviation(const Outcome &actual, const Outcome &expected);

std::unique_ptr<Module> copyOf(const Module &module);

/// What comparing graphs with what they said before any pass came to, over all of them.
struct ReferenceCounts {
  int64_t slopes = 0;       ///< gradients of a parameter that were compared
  int64_t redrawn = 0;      ///< of these, at another point: at the first one the loss has a kink or a step
  int64_t atKinks = 0;      ///< gradients that were not compared: at every point the loss has a kink or a step
  int64_t notRebatched = 0; ///< graphs without a reference (GraphReference::make)
};

/// What was met over all graphs.
struct Tally {
  llvm::StringSet<> drawn, reached; ///< names of ops: of graphs as generated, of any stage
  ReferenceCounts reference;
};

/// Ways to place the units that a graph is checked with.
constexpr size_t everyPlacement = ~size_t{0};

/// The first property that the graph violates. Besides full_shard, `placements` others that the seed draws are tried.
std::optional<Violation> violationOf(const Module &graph, const Choices &choices, uint64_t seed, const Target &target,
                                     Tally &tally, size_t placements = everyPlacement);

} // namespace fsdpc
