// Where the samples of the batch are in every value of a forward function.
#pragma once

#include "ir/module.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc {

/// The element at coordinate c of `axis` belongs to sample (c / inner) % samples: [B, T] has inner 1, [B*T] inner T,
/// [T*B] inner 1 and T runs of all samples.
struct BatchPosition {
  int64_t axis = 0;
  int64_t samples = 1; ///< of one rank
  int64_t inner = 1;   ///< neighbours on the axis that belong to the same sample
  /// Is coordinate c sample c?
  bool isWholeAxisOf(const Type &type) const { return inner == 1 && type.dim(axis) == samples; }
  friend bool operator==(const BatchPosition &, const BatchPosition &) = default;
};

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
  bool isLost(const Value *value) const { return facts.lookup(value).kind == Kind::lost; }

  /// One step of the analysis.
  enum class Kind : uint8_t { none, found, lost };
  struct Fact {
    Kind kind = Kind::none;
    BatchPosition position;
  };

private:
  llvm::DenseMap<const Value *, Fact> facts; ///< of values with a batch
};

} // namespace fsdpc
