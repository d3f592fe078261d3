// Constant folding while the graph is built.
#pragma once

#include "ir/builder.h"
#include "ir/eval/evaluate.h"
#include <optional>

namespace fsdpc {

/// If only constants (or broadcasts of constants) decide a node that has just been built, removes it and returns
/// constants in place of its results; empty if it has to stay. Values that are all one become splats; a large value
/// that repeats along its first axis becomes a constant without the repetition and a broadcast.
llvm::SmallVector<Value *, 2> foldNode(Builder &builder, Node *node);

/// All elements of a constant or of a broadcast of one; none for anything else, and for more than 2^24 elements.
std::optional<HostTensor> knownValue(const Value *value);

/// A constant with the fewest elements: a splat where all are equal.
Value *makeConstant(Builder &builder, Type type, Dense value);

} // namespace fsdpc
