// The graph as generated, before any pass has seen it: what a compile is compared with where the faults of graph
// passes, loss and autodiff must not cancel. It shares with the compiler the values of the ops (ir/ops) and nothing
// else: the loss is computed here, and slopes are differences of losses.
#pragma once

#include "tests/random/random_data.h"

#include <set>

namespace fsdpc {

/// The forward function on the samples of all ranks and micro-steps, in f64, and the loss over all of them.
class GraphReference {
public:
  /// `keyedByRank`: instances of random numbers that were announced to depend on the number of ranks. `samples` are
  /// those of the global batch, with the labels. Parameters of the graph are at `parameters` until moved. Null where
  /// the graph cannot be made for the batch that a synced norm takes its statistics of (rebatched.h).
  static llvm::Expected<std::unique_ptr<GraphReference>> make(const Module &graph, const Choices &choices,
                                                              const std::set<int64_t> &keyedByRank,
                                                              const Tensors &samples, const Tensors &parameters);

  /// The global loss with parameter `name` at its value plus `step` times `direction`. What stop_gradient returns stays
  /// as it is at `parameters`.
  llvm::Expected<double> lossAt(const std::string &name, llvm::ArrayRef<double> direction, double step);
  llvm::Expected<double> loss() { return lossAt("", {}, 0); }

  /// What evaluation returns for the samples of rank 0's first micro-step, by the outputs' names: without dropout,
  /// norms with running statistics.
  llvm::Expected<Tensors> evaluationOutputs();

private:
  GraphReference(const Choices &choices) : choices(choices) {}
  llvm::Error freezeStops();

  const Choices &choices;
  std::unique_ptr<Module> training, evaluation;
  std::vector<Tensors> rows; ///< of each rank and micro-step, or of each micro-step where the batch is whole
  std::vector<Tensors> evaluationRows;
  EvaluationState state, evaluationState;
};

} // namespace fsdpc
