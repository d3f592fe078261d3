// Constant folding while the graph is built.
#pragma once

#include "ir/builder.h"
#include "ir/eval/evaluate.h"
#include <optional>
#include <unordered_map>

namespace fsdpc {

/// Folds the nodes of one function. Exporters write a mask anew for every layer: what an equal node over equal
/// constants gave is what the next one gives, so that time and memory do not grow with the layers.
class ConstantFolder {
public:
  /// If only constants (or broadcasts of constants) decide a node that has just been built, removes it and returns
  /// constants in place of its results; empty if it has to stay. Values that are all one become splats; a large value
  /// that repeats along its first axis becomes a constant without the repetition and a broadcast.
  llvm::SmallVector<Value *, 2> fold(Builder &builder, Node *node);

  /// The same elements; of equal ones the same bytes.
  Dense shared(Dense value);

private:
  std::unordered_map<std::string, llvm::SmallVector<Value *, 2>> known; ///< by keyOf
  std::unordered_multimap<size_t, Dense> byHash;                        ///< what `shared` has seen
};

/// All elements of a constant or of a broadcast of one; none for anything else, and for more than 2^24 elements.
std::optional<HostTensor> knownValue(const Value *value);

/// A constant with the fewest elements: a splat where all are equal.
Value *makeConstant(Builder &builder, Type type, Dense value);

} // namespace fsdpc
