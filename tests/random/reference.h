// The graph as generated, before any pass. A compile is compared with it, so that errors in graph passes, loss and
// autodiff cannot cancel. It shares only the evaluation of ops (ir/ops) with the compiler: the loss is computed here,
// and gradients are differences of losses.
#pragma once

#include "tests/random/random_data.h"

#include <set>

namespace fsdpc {

/// The forward function on the samples of all ranks and micro-steps, in f64, and the loss over all of them.
class GraphReference {
public:
  /// `keyedByRank`: instances of random numbers that a remark reports to depend on the number of ranks. `samples` are
  /// those of the global batch, with the labels. Parameters of the graph are at `parameters` until moved. Null if the
  /// graph cannot be rebuilt for the batch of a synced norm's statistics (rebatched.h).
  static llvm::Expected<std::unique_ptr<GraphReference>> make(const Module &graph, const Choices &choices,
                                                              const std::set<int64_t> &keyedByRank,
                                                              const Tensors &samples, const Tensors &parameters);

  /// The global loss with parameter `name` at its value plus `step` times `direction`. Results of stop_gradient keep
  /// their values at `parameters`.
  llvm::Expected<double> lossAt(const std::string &name, llvm::ArrayRef<double> direction, double step);
  llvm::Expected<double> loss() { return lossAt("", {}, 0); }

  /// The results of evaluation for the samples of rank 0's first micro-step, by output name: without dropout, and with
  /// running statistics in norms.
  llvm::Expected<Tensors> evaluationOutputs();

private:
  GraphReference(const Choices &choices) : choices(choices) {}
  llvm::Error freezeStops();

  const Choices &choices;
  std::unique_ptr<Module> training, evaluation;
  std::vector<Tensors> rows; ///< of each rank and micro-step, or of each micro-step if the batch is not split
  std::vector<Tensors> evaluationRows;
  EvaluationState state, evaluationState;
};

} // namespace fsdpc
