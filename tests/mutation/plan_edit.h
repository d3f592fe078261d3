// Helpers of mutators for planned modules: finding nodes and values, and moving buffers with all their names.
#pragma once

#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "tests/mutation/random.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc::mutation {

std::vector<Node *> nodesWhere(const Module &module, llvm::function_ref<bool(const Node &)> wanted);
std::vector<Value *> valuesOf(const Function &function);

bool isReduction(const Node &node); ///< the start of a reduction
bool isStart(const Node &node);
/// The wait for a started collective in the same function; null if its future is carried.
Node *waitOf(const Node &start);
bool hasBytes(const Value &value);

/// Unused memory at the end of the arena, which grows.
Place freshPlace(Module &module, Space space, int64_t bytes);
/// Renumbers collectives in program order.
void renumber(Module &module);
/// Creates a compute node in the section of `like`, before `position`.
Node *insertCompute(Op op, llvm::ArrayRef<Value *> operands, std::unique_ptr<AttributesBase> attributes,
                    const Node &like, Node *position);
/// Uses of `from` after `position` read `to` instead.
void replaceUsesAfter(Value &from, Value &to, const Node &position);

/// All values, arguments, workspaces and states that share one piece of memory.
struct Piece {
  std::vector<Value *> values;
  std::vector<State *> states;
  void moveBy(int64_t bytes);
  bool contains(const Value *value) const;
};
Piece pieceOf(Module &module, Value &value);

} // namespace fsdpc::mutation
