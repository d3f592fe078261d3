// Shared by the graph passes: replacing nodes, merging equal ones, folding nodes with constant operands.
#pragma once

#include "ir/builder.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc {

using Replacement = llvm::SmallVector<Value *, 2>;

/// True if the node can be removed when its results are unused: pure ops and reads of state.
bool isRemovable(const Node &node);

/// Replaces the node's results by `values`, which inherit the names if they have none. Erases the node and the nodes
/// that only it used. Does not touch later nodes.
void replaceNode(Node *node, llvm::ArrayRef<Value *> values);

/// Erases an unused node, then repeatedly the nodes that only erased ones used.
void eraseWithUnusedOperands(Node *node);

/// Of nodes with equal op, attributes and operands only the first is kept. `mayMerge` selects the nodes to consider.
void mergeEqualNodes(Function &function, llvm::function_ref<bool(const Node &)> mayMerge);

/// Constants that replace the results of a pure node with constant operands (also seen through one broadcast). Empty if
/// there is nothing to fold or the result is too large (more than 2^12 elements that are not all equal, and more than
/// the operands store). A single value for all elements stays a splat. A broadcast of any other constant is no longer
/// constant and is not folded.
Replacement foldNode(const Node &node, Builder &builder);

/// Visits every node from the front. `simplify` returns values that replace a node, built before it, or nothing. The
/// new nodes are visited before the following ones.
void rewriteNodes(Function &function, llvm::function_ref<Replacement(Node &, Builder &)> simplify);

} // namespace fsdpc
