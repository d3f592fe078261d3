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

/// True if a node of the function has this op.
bool containsOp(const Function &function, Op op);

/// The later of two nodes of a function. Null counts as the earliest.
Node *laterOf(Node *a, Node *b);

} // namespace fsdpc
