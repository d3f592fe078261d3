#include "tests/mutation/plan_edit.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc::mutation {

std::vector<Node *> nodesWhere(const Module &module, llvm::function_ref<bool(const Node &)> wanted) {
  std::vector<Node *> found;
  for (const std::unique_ptr<Function> &function : module.functions)
    for (Node *node : *function)
      if (wanted(*node))
        found.push_back(node);
  return found;
}

std::vector<Value *> valuesOf(const Function &function) {
  std::vector<Value *> values;
  for (const Argument &argument : function.arguments())
    values.push_back(argument.value.get());
  for (Node *node : function)
    for (unsigned i = 0; i < node->resultCount(); ++i)
      values.push_back(node->result(i));
  return values;
}

bool isStart(const Node &node) { return infoOf(node).has(startsTransfer); }
bool isReduction(const Node &node) { return startsCollective(node) && node.op() != Op::allGatherStart; }
bool hasBytes(const Value &value) { return !value.type().isToken() && value.type().bytes() > 0; }

Node *waitOf(const Node &start) {
  for (Use *use = start.result()->uses(); use; use = use->next())
    if (use->user()->op() == Op::wait)
      return use->user();
  return nullptr;
}

Place freshPlace(Module &module, Space space, int64_t bytes) {
  std::optional<int64_t> &arenaBytes = module.facts.arena(space).bytes;
  const int64_t end = roundUp(arenaBytes.value_or(0), 64);
  arenaBytes = end + bytes;
  return {space, end};
}

void renumber(Module &module) {
  int64_t id = 0;
  for (Node *start : nodesWhere(module, startsCollective))
    start->get<CollectiveAttributes>().id = id++;
}

Node *insertCompute(Op op, llvm::ArrayRef<Value *> operands, std::unique_ptr<AttributesBase> attributes,
                    const Node &like, Node *position) {
  Builder builder(*like.function(), position);
  builder.inherit(like);
  Node *node = builder.create(op, operands, std::move(attributes));
  node->schedule.stream = Stream::compute;
  return node;
}

void replaceUsesAfter(Value &from, Value &to, const Node &position) {
  std::vector<Use *> uses;
  for (Use *use = from.uses(); use; use = use->next())
    if (position.isBefore(use->user()) && use->user()->op() != Op::free)
      uses.push_back(use);
  for (Use *use : uses)
    use->user()->setOperand(use->index(), &to);
}

bool Piece::contains(const Value *value) const { return llvm::is_contained(values, value); }

void Piece::moveBy(int64_t bytes) {
  for (Value *value : values)
    value->place.offsetBytes += bytes;
  for (State *state : states)
    state->place.offsetBytes += bytes;
}

namespace {

/// Values that share memory by the rules of the plan, over all functions.
class PieceFinder {
public:
  explicit PieceFinder(Module &module) : module(module) {
    for (const std::unique_ptr<Function> &function : module.functions)
      for (const Argument &argument : function->arguments())
        if (argument.kind == ArgumentKind::carry)
          carried.insert(argument.name);
    for (const std::unique_ptr<Function> &function : module.functions)
      link(*function);
  }
  Piece from(Value &seed) {
    std::vector<Value *> open = {&seed};
    while (!open.empty()) {
      Value *value = open.back();
      open.pop_back();
      if (piece.contains(value) || !hasBytes(*value))
        continue;
      piece.values.push_back(value);
      addState(value);
      llvm::append_range(open, neighbours[value]);
    }
    return std::move(piece);
  }

private:
  void join(Value *a, Value *b) {
    neighbours[a].push_back(b);
    neighbours[b].push_back(a);
  }

  void link(Function &function) {
    for (const Argument &argument : function.arguments())
      join(named.try_emplace(argument.name, argument.value.get()).first->second, argument.value.get());
    for (Node *node : function) {
      if (infoOf(*node).has(aliasesOperand) || node->op() == Op::wait)
        join(node->result(), node->operand(0));
      if (node->op() == Op::pack)
        for (Value *part : node->operands())
          join(node->result(), part);
      if (node->op() == Op::read || node->op() == Op::write)
        linkState(*node);
      if (node->op() == Op::ret)
        for (unsigned i = 0; i < node->operandCount(); ++i)
          if (const std::string &name = node->get<ReturnAttributes>().names[i]; carried.contains(name))
            join(named.try_emplace(name, node->operand(i)).first->second, node->operand(i));
      linkInPlace(*node);
    }
  }

  void linkState(Node &node) {
    State *state = module.state(node.get<StateAttributes>().state.name);
    Value *value = node.op() == Op::read ? node.result() : node.operand(0);
    if (!(value->place == state->place))
      return;
    stateOf[value] = state;
    valuesOfState[state].push_back(value);
  }

  void linkInPlace(Node &node) {
    if (isStart(node))
      return;
    for (unsigned i = 0; i < node.resultCount(); ++i)
      for (Value *operand : node.operands())
        if (hasBytes(*node.result(i)) && node.result(i)->place == operand->place)
          join(node.result(i), operand);
  }

  void addState(Value *value) {
    State *state = stateOf.lookup(value);
    if (!state || llvm::is_contained(piece.states, state))
      return;
    piece.states.push_back(state);
    for (Value *other : valuesOfState[state])
      neighbours[value].push_back(other);
  }

  Module &module;
  Piece piece;
  llvm::DenseMap<Value *, std::vector<Value *>> neighbours;
  llvm::StringSet<> carried;
  llvm::StringMap<Value *> named;
  llvm::DenseMap<Value *, State *> stateOf;
  llvm::DenseMap<State *, std::vector<Value *>> valuesOfState;
};

} // namespace

Piece pieceOf(Module &module, Value &value) { return PieceFinder(module).from(value); }

} // namespace fsdpc::mutation
