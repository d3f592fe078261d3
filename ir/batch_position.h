// Where the samples of the batch are in a value, and the type of an op's rule that derives this for a result.
// passes/analysis/batch_axis.h propagates it through a function.
#pragma once

#include "ir/type.h"
#include "llvm/ADT/ArrayRef.h"

namespace fsdpc {

class Node;

/// The element at coordinate c of `axis` belongs to sample (c / inner) % samples. [B, T] has inner 1. [B*T] has inner
/// T. [T*B] has inner 1 and repeats the sequence of all samples T times.
struct BatchPosition {
  int64_t axis = 0;
  int64_t samples = 1; ///< of one rank
  int64_t inner = 1;   ///< neighbours on the axis that belong to the same sample
  /// True if coordinate c is sample c for every c.
  bool isFullAxisOf(const Type &type) const { return inner == 1 && type.dim(axis) == samples; }
  friend bool operator==(const BatchPosition &, const BatchPosition &) = default;
};

/// What is known about the batch in a value.
struct BatchFact {
  enum class Kind : uint8_t {
    none, ///< the value depends on no sample, or on all of them equally
    found,
    lost, ///< the order of the samples has no BatchPosition
  };
  Kind kind = Kind::none;
  BatchPosition position = {}; ///< valid if found
};

/// The fact of one result, from the facts of the operands. At least one operand has a batch.
using BatchRule = BatchFact (*)(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned result);

} // namespace fsdpc
