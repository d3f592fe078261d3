// Questions about nodes and values that many passes ask.
#pragma once

#include "ir/module.h"

namespace fsdpc {

/// What a read, write, stash or unstash is about; null in a module that names no such state (V8).
State *stateOf(const Node &node);

/// The state of which the value is the current version; null if it comes from no read.
State *stateReadBy(const Value &value);

/// The wait for the future of a start; or the return that leaves it to the next step.
Node *waitOf(const Node &start);

/// The value whose memory it is, seen through reshapes and views.
Value *aliasRoot(Value *value);

/// The later of two nodes of a function; null comes first.
Node *laterOf(Node *a, Node *b);

} // namespace fsdpc
