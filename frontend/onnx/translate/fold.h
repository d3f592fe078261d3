// Constant folding while the graph is built.
#pragma once

#include "ir/builder.h"
#include "ir/eval/evaluate.h"
#include <optional>
#include <unordered_map>

namespace fsdpc {

/// Folds the nodes of one function. Exporters write a mask again for every layer, so the results of equal nodes over
/// equal constants are reused, and time and memory do not grow with the layers.
class ConstantFolder {
public:
  /// If all operands of a new node are constants or broadcasts of constants, and its results are small or no larger
  /// than these, removes it and returns constants in place of its results. Returns an empty list if the node has to
  /// stay. Uniform values become splats. A large value that repeats along its first axis becomes a smaller constant and
  /// a broadcast.
  llvm::SmallVector<Value *, 2> fold(Builder &builder, Node *node);

  /// Returns the same elements, and shares the bytes among equal values.
  Dense shared(Dense value);

private:
  std::unordered_map<std::string, llvm::SmallVector<Value *, 2>> known; ///< by keyOf
  std::unordered_multimap<size_t, Dense> byHash;                        ///< values passed to `shared` so far
};

/// A constant with the fewest stored elements: a splat if all are equal.
Value *makeConstant(Builder &builder, Type type, Dense value);

} // namespace fsdpc
