// Queries about nodes and values that many passes share.
#pragma once

#include "ir/module.h"

namespace fsdpc {

/// The state of a read, write, stash or unstash. Null if the module has no such state (V8).
State *stateOf(const Node &node);

/// The state whose current version the value is. Null if the value is not from a read.
State *stateReadBy(const Value &value);

/// The wait for the future of a start, or the return that passes it to the next step.
Node *waitOf(const Node &start);

/// The value that owns the memory of `value`, through reshapes and views.
Value *aliasRoot(Value *value);

/// The mesh axis that a node of one rank's program names, and the number of its ranks as the node states it.
struct NamedAxis {
  llvm::StringRef name;
  int64_t ranks;
};
/// Of collectives, take_shard and the ops on rows; nullopt for others, batch_sum too.
std::optional<NamedAxis> axisNamedBy(const Node &node);

/// True for the memory of a constant, which belongs to the program. In `start`, which runs once, it is freed like
/// others.
bool isPermanentConstant(const Value &value);

/// True if a node of the function has this op.
bool containsOp(const Function &function, Op op);

/// The later of two nodes of a function. Null counts as the earliest.
Node *laterOf(Node *a, Node *b);

} // namespace fsdpc
