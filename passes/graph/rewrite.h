// What the graph passes share: exchanging nodes, merging equal ones, evaluating those that only constants decide.
#pragma once

#include "ir/builder.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc {

using Replacement = llvm::SmallVector<Value *, 2>;

/// May the node go when nothing uses its results? Pure ops and reads of state.
bool isRemovable(const Node &node);

/// The users of the node's results take `values` instead, which inherit the names if they have none. The node
/// disappears, and with it what only it used. Nothing behind the node is touched.
void replaceNode(Node *node, llvm::ArrayRef<Value *> values);

/// Erases an unused node and then, as long as there are any, nodes that only erased ones used.
void eraseWithUnusedOperands(Node *node);

/// Of nodes with equal op, attributes and operands only the first stays. `mayMerge` says which to look at.
void mergeEqualNodes(Function &function, llvm::function_ref<bool(const Node &)> mayMerge);

/// Constants in place of the results of a pure node whose operands are constants (also seen through one broadcast);
/// empty if there is nothing to fold or too much (a result beyond 2^20 elements that is not one value). One value for
/// all elements stays a splat; a broadcast of anything else is no longer constant and stays as it is.
Replacement foldNode(const Node &node, Builder &builder);

/// Visits every node from the front; `simplify` gives values to take a node's place, built before it, or nothing. What
/// it built is visited in turn, before what follows.
void rewriteNodes(Function &function, llvm::function_ref<Replacement(Node &, Builder &)> simplify);

} // namespace fsdpc
