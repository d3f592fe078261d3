// The position of the batch's samples in every value of a forward function.
#pragma once

#include "ir/batch_position.h"
#include "ir/module.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc {

/// Follows dim 0 of the inputs through the function. An element of a value with a position depends on its own sample,
/// on parameters and constants, and on values shared by all samples (a mean over the batch), but on no other sample.
/// Valid while the function's nodes do not change.
class BatchAxis {
public:
  explicit BatchAxis(const Function &function);

  /// nullopt if the value has no batch (constants, parameters, sums over the batch) or if no position can express the
  /// order of the samples.
  std::optional<BatchPosition> of(const Value *value) const;
  /// True if the value contains the batch at an unknown position.
  bool isLost(const Value *value) const { return facts.lookup(value).kind == BatchFact::Kind::lost; }

private:
  void visit(const Node &node);
  llvm::DenseMap<const Value *, BatchFact> facts; ///< of values with a batch
};

} // namespace fsdpc
