// Copies of straight-line code.
#pragma once

#include "ir/builder.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc {

using ValueMap = llvm::DenseMap<Value *, Value *>;

/// Appends a copy of every node of `from` except its `return` to `to`. Arguments are added to `to` with the same kinds
/// and names unless `values` already maps them. `values` receives old value -> new value. `replace` may return a
/// replacement for a node's single result (null: copy the node).
void cloneBody(const Function &from, Function &to, ValueMap &values,
               llvm::function_ref<Value *(Builder &, const Node &, const ValueMap &)> replace = nullptr);

/// Position of a result in the function's return; -1 if it returns none of that name.
int64_t resultIndex(const Function &function, llvm::StringRef name);
/// Its value; null if there is none.
Value *resultValue(const Function &function, llvm::StringRef name);

/// Removes the results that the predicate selects.
void eraseResults(Function &function, llvm::function_ref<bool(llvm::StringRef name)> isObsolete);
/// The user that comes first in the function; null if there is none.
Node *firstUser(const Value &value);

/// Removes arguments that nothing uses.
void eraseUnusedArguments(Function &function);
/// Removes pure nodes whose results are unused, from the end backwards.
void eraseDeadNodes(Function &function);

} // namespace fsdpc
