// What mutators do to planned modules: finding things in them, and moving buffers with all their names.
#pragma once

#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "tests/mutation/random.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc::mutation {

std::vector<Node *> nodesWhere(const Module &module, llvm::function_ref<bool(const Node &)> wanted);
std::vector<Value *> valuesOf(const Function &function);

bool isReduction(const Node &node); ///< the start of one
bool isStart(const Node &node);
/// The wait for a started collective in the same function; null if it is carried on.
Node *waitOf(const Node &start);
bool hasBytes(const Value &value);

/// Memory that nothing else uses: the arena grows.
Place freshPlace(Module &module, Space space, int64_t bytes);
/// Collectives count up in program order again.
void renumber(Module &module);
/// A new compute node of the section of `like`, before `position`.
Node *insertCompute(Op op, llvm::ArrayRef<Value *> operands, std::unique_ptr<AttributesBase> attributes,
                    const Node &like, Node *position);
/// Uses of `from` behind `position` read `to` instead.
void replaceUsesBehind(Value &from, Value &to, const Node &position);

/// All values, arguments, workspaces and states that are one piece of memory with `value`.
struct Piece {
  std::vector<Value *> values;
  std::vector<State *> states;
  void moveBy(int64_t bytes);
  bool contains(const Value *value) const;
};
Piece pieceOf(Module &module, Value &value);

} // namespace fsdpc::mutation
