#include "passes/analysis/buffers.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "passes/analysis/state_readers.h"

namespace fsdpc {

namespace {

Value *lookThroughReshapes(Value *value) {
  while (value->definer() && value->definer()->op() == Op::reshape)
    value = value->definer()->operand(0);
  return value;
}

/// write(@s, optimizer(read @s, ...)): the new version is stored at the old one's address.
Value *stateRead(const Node &write) {
  const std::string &state = write.get<StateAttributes>().state.name;
  Node *definer = write.operand(0)->definer();
  if (!definer || !infoOf(*definer).has(inPlace))
    return nullptr;
  for (Value *operand : definer->operands())
    if (Node *read = operand->definer();
        read && read->op() == Op::read && read->get<StateAttributes>().state.name == state)
      return operand;
  return nullptr;
}

/// The future that the value is the wait result of; null if it is no result of a wait.
const Value *futureOf(const Value &value) {
  const Node *definer = value.definer();
  return definer && definer->op() == Op::wait ? definer->operand(0) : nullptr;
}

/// True if the state's old version is no longer in use when the collective starts.
bool isReadBefore(const Node *lastReader, const Value &future) {
  return future.definer() && (!lastReader || lastReader->isBefore(future.definer()));
}

/// True if the old version of an accumulator or buffer is no longer in use when its new version is computed, except
/// elementwise by the same node. A table has no old version.
bool isComputedOver(const Node *lastReader, const Value &sum) {
  const Node *definer = sum.definer();
  if (!definer)
    return false;
  bool byElement = isElementwise(*definer) || definer->op() == Op::fused;
  if (lastReader == definer)
    return byElement;
  return (byElement || definer->op() == Op::broadcast) && (!lastReader || lastReader->isBefore(definer));
}

bool isUpdatedByElement(const Function &function, llvm::StringRef name) {
  const State *state = function.module()->state(name);
  return state && (state->role == StateRole::accumulator || state->role == StateRole::buffer);
}

bool isTable(const Function &function, llvm::StringRef name) {
  const State *state = function.module()->state(name);
  return state && state->role == StateRole::table;
}

} // namespace

BufferAnalysis::BufferAnalysis(const Function &function) {
  llvm::StringMap<Node *> readers = lastReaders(function);
  for (Node *node : function) {
    if (node->op() == Op::view) {
      const auto &attributes = node->get<ViewAttributes>();
      parentOf[node->result()] = {node->operand(0), attributes.offset * byteSize(node->result()->type().dtype())};
    } else if (node->op() == Op::reshape || node->op() == Op::wait) {
      parentOf[node->result()] = {node->operand(0), 0};
    } else if (node->op() == Op::pack) {
      const auto &attributes = node->get<PackAttributes>();
      int64_t width = byteSize(node->result()->type().dtype());
      for (unsigned i = 0; i < node->operandCount(); ++i)
        parentOf[lookThroughReshapes(node->operand(i))] = {node->result(), attributes.offsets[i] * width};
    } else if (node->op() == Op::write) {
      if (Value *read = stateRead(*node))
        parentOf[node->operand(0)] = {read, 0};
      const std::string &state = node->get<StateAttributes>().state.name;
      if (const Value *future = futureOf(*node->operand(0)); future && isReadBefore(readers.lookup(state), *future))
        deliveredTo[future] = state;
      if (isUpdatedByElement(function, state) && isComputedOver(readers.lookup(state), *node->operand(0)))
        deliveredTo[node->operand(0)] = state;
      if (isTable(function, state))
        deliveredTo[node->operand(0)] = state;
    }
  }
}

BufferRef BufferAnalysis::bufferOf(Value *value) const {
  BufferRef ref{value, 0};
  for (auto found = parentOf.find(ref.root); found != parentOf.end(); found = parentOf.find(ref.root))
    ref = {found->second.root, ref.offsetBytes + found->second.offsetBytes};
  return ref;
}

llvm::StringRef BufferAnalysis::stateOf(const Value *root) const {
  const Node *definer = root->definer();
  if (definer && definer->op() == Op::read)
    return definer->get<StateAttributes>().state.name;
  return deliveredTo.lookup(root);
}

} // namespace fsdpc
