// Where the samples of the batch are in every value of a forward function.
#pragma once

#include "ir/batch_position.h"
#include "ir/module.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc {

/// Follows dim 0 of the inputs through the function. An element of a value with a position depends on its own sample,
/// on parameters and constants, and on numbers that all samples share (a mean over the batch); on no other sample.
/// Valid while the function's nodes do not change.
class BatchAxis {
public:
  explicit BatchAxis(const Function &function);

  /// Nothing if the value has no batch (constants, parameters, sums over the batch) or if the samples lie in no order
  /// that a position can say.
  std::optional<BatchPosition> of(const Value *value) const;
  /// Is the batch in the value, but nobody can say where?
  bool isLost(const Value *value) const { return facts.lookup(value).kind == BatchFact::Kind::lost; }

private:
  void visit(const Node &node);
  llvm::DenseMap<const Value *, BatchFact> facts; ///< of values with a batch
};

} // namespace fsdpc
