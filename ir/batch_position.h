// Where the samples of the batch are in a value, and the rule of an op that says where those of its operands come out.
// passes/analysis/batch_axis.h follows them through a function.
#pragma once

#include "ir/type.h"
#include "llvm/ADT/ArrayRef.h"

namespace fsdpc {

class Node;

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

/// What is known of the batch in a value.
struct BatchFact {
  enum class Kind : uint8_t {
    none, ///< it depends on no sample, or on all of them alike
    found,
    lost, ///< the samples lie in no order that a position can say
  };
  Kind kind = Kind::none;
  BatchPosition position = {}; ///< where it is found
};

/// Of one result, from what is known of each operand; at least one of them has a batch.
using BatchRule = BatchFact (*)(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned result);

} // namespace fsdpc
