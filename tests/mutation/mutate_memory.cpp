// Faults of memory: frees, edges, offsets, bounds.
#include "ir/text/text.h"
#include "tests/mutation/mutators.h"
#include "tests/mutation/plan_edit.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc::mutation {

namespace {

using What = std::optional<std::string>;

std::vector<Node *> freesOf(const Module &module) {
  return nodesWhere(module, [](const Node &node) { return node.op() == Op::free; });
}

/// Users of the memory of a value under any of its names, except frees.
std::vector<Node *> usersOf(const Module &module, const Function &function, const Piece &piece) {
  return nodesWhere(module, [&](const Node &node) {
    return node.function() == &function && node.op() != Op::free && node.op() != Op::ret &&
           llvm::any_of(node.operands(), [&](Value *operand) { return piece.contains(operand); });
  });
}

int64_t widthOf(const Value &value) { return byteSize(value.type().dtype()); }

/// Operands and results that have bytes.
std::vector<Value *> valuesInMemory(const Node &node) {
  std::vector<Value *> values;
  for (Value *operand : node.operands())
    if (hasBytes(*operand))
      values.push_back(operand);
  for (unsigned i = 0; i < node.resultCount(); ++i)
    if (hasBytes(*node.result(i)))
      values.push_back(node.result(i));
  return values;
}

/// Two pieces of memory that one node accesses.
struct Pair {
  Value *moved = nullptr, *other = nullptr;
};

std::optional<Pair> somePair(Module &module, Random &random) {
  std::optional<Node *> node = random.pick(nodesWhere(module, [](const Node &node) {
    return node.operandCount() + node.resultCount() > 1 && node.op() != Op::free && node.op() != Op::pack &&
           !infoOf(node).has(aliasesOperand) && node.op() != Op::wait && node.op() != Op::write;
  }));
  if (!node)
    return std::nullopt;
  std::vector<Value *> values = valuesInMemory(**node);
  if (values.size() < 2)
    return std::nullopt;
  Pair pair{*random.pick(values), *random.pick(values)};
  bool differs = pair.moved != pair.other && pair.moved->place.space == pair.other->place.space &&
                 !pieceOf(module, *pair.moved).contains(pair.other);
  return differs ? std::optional<Pair>(pair) : std::nullopt;
}

} // namespace

What freeEarly(Module &module, Random &random) {
  std::optional<Node *> free = random.pick(freesOf(module));
  if (!free)
    return std::nullopt;
  Piece piece = pieceOf(module, *(*free)->operand(0));
  std::vector<Node *> users = usersOf(module, *(*free)->function(), piece);
  llvm::erase_if(users, [&](Node *user) {
    Node *definer = (*free)->operand(0)->definer();
    return !user->isBefore(*free) || (definer && !definer->isBefore(user));
  });
  // Frees the buffer while it is being sent and no later node reads it.
  Node *start = nullptr;
  for (Node *user : users)
    if (isStart(*user) && waitOf(*user) && waitOf(*user)->isBefore(*free))
      start = user;
  if (start && random.below(4) != 0) {
    (*free)->moveAfter(start);
    return "'" + toText(**free) + "' before the wait for '" + toText(*start) + "'";
  }
  std::optional<Node *> user = random.pick(users);
  if (!user)
    return std::nullopt;
  (*free)->moveBefore(*user);
  return "'" + toText(**free) + "' before '" + toText(**user) + "'";
}

What freeWrongly(Module &module, Random &random) {
  std::optional<Node *> free = random.pick(freesOf(module));
  if (!free)
    return std::nullopt;
  std::string what = toText(**free);
  switch (random.below(3)) {
  case 0:
    if ((*free)->result()->hasUses())
      return std::nullopt;
    (*free)->erase();
    return "dropped " + what;
  case 1: insertCompute(Op::free, {(*free)->operand(0)}, nullptr, **free, (*free)->next()); return "twice " + what;
  default: {
    std::vector<Value *> others;
    for (Value *value : valuesOf(*(*free)->function()))
      if (value != (*free)->operand(0) && value->type().isTensor() &&
          (!value->definer() || value->definer()->isBefore(*free)))
        others.push_back(value);
    std::optional<Value *> other = random.pick(others);
    if (!other)
      return std::nullopt;
    (*free)->setOperand(0, *other);
    return "'" + what + "' became '" + toText(**free) + "'";
  }
  }
}

What dropEdge(Module &module, Random &random) {
  std::optional<Node *> start =
      random.pick(nodesWhere(module, [](const Node &node) { return !node.afterTokens().empty(); }));
  if (!start)
    return std::nullopt;
  std::string what = toText(**start);
  size_t dropped = random.below((*start)->afterTokens().size());
  std::vector<Value *> tokens;
  for (size_t i = 0; i < (*start)->afterTokens().size(); ++i)
    if (i != dropped)
      tokens.push_back((*start)->afterTokens()[i]->value());
  std::vector<Node *> earlier;
  Node *right = (*start)->afterTokens()[dropped]->value()->definer();
  for (Node *free : freesOf(module))
    if (free->function() == (*start)->function() && free->isBefore(right))
      earlier.push_back(free);
  if (random.coin())
    if (std::optional<Node *> other = random.pick(earlier))
      tokens.push_back((*other)->result());
  Builder builder(*(*start)->function(), *start);
  Node *again = builder.clone(**start, (*start)->operands());
  again->result()->place = (*start)->result()->place;
  again->schedule.workspace = (*start)->schedule.workspace;
  for (Value *token : tokens)
    again->addAfter(token);
  (*start)->result()->replaceAllUsesWith(again->result());
  (*start)->erase();
  return "another edge than in " + what;
}

What overlap(Module &module, Random &random) {
  std::optional<Pair> pair = somePair(module, random);
  if (!pair)
    return std::nullopt;
  Piece piece = pieceOf(module, *pair->moved);
  int64_t width = std::max(widthOf(*pair->moved), widthOf(*pair->other));
  int64_t at = pair->other->place.offsetBytes +
               static_cast<int64_t>(random.below(pair->other->type().bytes() / width + 1)) / 2 * width;
  int64_t delta = at - pair->moved->place.offsetBytes;
  for (Value *value : piece.values)
    if (value->place.offsetBytes + delta < 0)
      return std::nullopt;
  if (delta == 0)
    return std::nullopt;
  piece.moveBy(delta);
  return "moved by " + std::to_string(delta) + ": " + ValueNames(*pair->moved->function()).of(pair->moved) + " over " +
         ValueNames(*pair->other->function()).of(pair->other);
}

What overlapWorkspace(Module &module, Random &random) {
  std::optional<Node *> node =
      random.pick(nodesWhere(module, [](const Node &node) { return node.operandCount() + node.resultCount() > 0; }));
  if (!node)
    return std::nullopt;
  std::vector<Value *> values = valuesInMemory(**node);
  std::optional<Value *> value = random.pick(values);
  bool works = value && !infoOf(**node).has(aliasesOperand) && (*node)->op() != Op::free && (*node)->op() != Op::wait &&
               (*node)->op() != Op::read && (*node)->op() != Op::ret && (*node)->op() != Op::pack;
  if (!works)
    return std::nullopt;
  if ((*node)->schedule.workspaceBytes == 0)
    (*node)->schedule.workspaceBytes = 64;
  (*node)->schedule.workspace = (*value)->place;
  (*node)->schedule.workspace.offsetBytes += static_cast<int64_t>(random.below((*value)->type().bytes()));
  return "scratch over an operand or result: " + toText(**node);
}

What changeBounds(Module &module, Random &random) {
  if (random.below(3) == 0) {
    std::vector<State *> segments;
    for (State &state : module.states)
      if (!state.slots.empty())
        segments.push_back(&state);
    std::optional<State *> segment = random.pick(segments);
    if (!segment)
      return std::nullopt;
    SegmentSlot &slot = (*segment)->slots[random.below((*segment)->slots.size())];
    switch (random.below(3)) {
    case 0: slot.offsetElements += random.coin() ? 1 : 32; break;
    case 1: slot.elements += random.coin() ? 1 : -1; break;
    default: (*segment)->paddedElements += 32; break;
    }
    return "slot of " + slot.parameter + " in " + (*segment)->name;
  }
  bool views = random.coin();
  std::optional<Node *> node =
      random.pick(nodesWhere(module, [&](const Node &node) { return node.op() == (views ? Op::view : Op::pack); }));
  if (!node)
    return std::nullopt;
  std::string what = toText(**node);
  int64_t by = *random.pick(std::vector<int64_t>{-32, -1, 1, 32, 64});
  if (views) {
    (*node)->get<ViewAttributes>().offset += by;
    (*node)->result()->place.offsetBytes += by * widthOf(*(*node)->result());
    return "from " + std::to_string(by) + " elements behind: " + what;
  }
  size_t index = random.below((*node)->operandCount());
  Value *part = (*node)->operand(static_cast<unsigned>(index));
  (*node)->get<PackAttributes>().offsets[index] += by;
  std::vector<Value *> names = {part};
  while (names.back()->definer() && names.back()->definer()->op() == Op::reshape)
    names.push_back(names.back()->definer()->operand(0));
  for (Value *name : names)
    name->place.offsetBytes += by * widthOf(*part);
  return "part " + std::to_string(index) + " at " + std::to_string(by) + " elements behind: " + what;
}

What misplace(Module &module, Random &random) {
  std::vector<Value *> values;
  for (const std::unique_ptr<Function> &function : module.functions)
    for (Value *value : valuesOf(*function))
      if (hasBytes(*value))
        values.push_back(value);
  switch (random.below(4)) {
  case 0: {
    State &state = module.states[random.below(module.states.size())];
    state.place.offsetBytes += 64;
    return "state " + state.name + " moved without its reads";
  }
  case 1: {
    std::optional<int64_t> &bytes = module.facts.arena(random.coin() ? Space::privateSpace : Space::window).bytes;
    // Half, because arenas are rounded up to pages: the arena must be smaller than the memory in use.
    bytes = *bytes / 2;
    return "an arena of " + std::to_string(*bytes) + " bytes";
  }
  case 2: {
    std::optional<Value *> value = random.pick(values);
    if (widthOf(**value) < 4)
      return std::nullopt;
    pieceOf(module, **value).moveBy(2);
    return "misaligned: " + ValueNames(*(*value)->function()).of(*value);
  }
  default: {
    std::vector<Value *> aliases;
    for (Value *value : values)
      if (!value->definer() || infoOf(*value->definer()).has(aliasesOperand) || value->definer()->op() == Op::wait ||
          value->definer()->op() == Op::read)
        aliases.push_back(value);
    std::optional<Value *> value = random.pick(aliases);
    if (!value)
      return std::nullopt;
    (*value)->place.offsetBytes += 64;
    return "elsewhere than its memory: " + ValueNames(*(*value)->function()).of(*value);
  }
  }
}

} // namespace fsdpc::mutation
