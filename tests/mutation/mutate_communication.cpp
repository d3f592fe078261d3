// Faults of collectives: waits, reductions, order, groups, streams.
#include "ir/text/text.h"
#include "tests/mutation/mutators.h"
#include "tests/mutation/plan_edit.h"

namespace fsdpc::mutation {

namespace {

/// The free of the start's operand; null if there is none.
Node *freeOfOperand(const Node &start) {
  for (Use *use = start.operand(0)->uses(); use; use = use->next())
    if (use->user()->op() == Op::free)
      return use->user();
  return nullptr;
}

/// Another wait of the same type, which `wait` may be confused with; null if there is none.
Node *otherWait(const Module &module, const Node &wait, Random &random) {
  return random
      .pick(nodesWhere(module,
                       [&](const Node &node) {
                         return node.op() == Op::wait && &node != &wait && node.function() == wait.function() &&
                                node.operand(0)->definer() && node.operand(0)->definer()->isBefore(&wait) &&
                                node.operand(0)->type() == wait.operand(0)->type();
                       }))
      .value_or(nullptr);
}

bool isBeforeAllUses(const Value &value, const Node &position) {
  for (const Use *use = value.uses(); use; use = use->next())
    if (!position.isBefore(use->user()))
      return false;
  return true;
}

std::vector<const MeshAxis *> otherAxes(const Module &module, const std::string &name) {
  std::vector<const MeshAxis *> axes;
  for (const MeshAxis &axis : module.mesh)
    if (axis.name != name && !(axis.size == module.axis(name)->size && axis.stride == module.axis(name)->stride))
      axes.push_back(&axis);
  return axes;
}

/// Adds axes to programs with a single one, so that axes can be confused.
void addAxes(Module &module) {
  int64_t ranks = module.worldSize();
  for (int64_t stride = 1; stride < ranks; stride *= 2)
    if (ranks % (stride * 2) == 0)
      module.mesh.push_back({"pair" + std::to_string(stride), 2, stride});
  module.mesh.push_back({"nobody", 1, 1});
}

} // namespace

std::optional<std::string> dropWait(Module &module, Random &random) {
  std::optional<Node *> wait = random.pick(nodesWhere(module, [](const Node &node) { return node.op() == Op::wait; }));
  if (!wait)
    return std::nullopt;
  std::string what = toText(**wait);
  Node *start = (*wait)->operand(0)->definer();
  Node *freed = start ? freeOfOperand(*start) : nullptr;
  if (freed && (*wait)->isBefore(freed) && isBeforeAllUses(*(*wait)->result(), *freed)) {
    (*wait)->moveAfter(freed);
    return "moved behind the free of what is sent: " + what;
  }
  if (Node *other = otherWait(module, **wait, random)) {
    (*wait)->setOperand(0, other->operand(0));
    return "waits for another future: " + what;
  }
  (*wait)->result()->replaceAllUsesWith((*wait)->operand(0));
  (*wait)->erase();
  return "dropped " + what;
}

std::optional<std::string> dropReduce(Module &module, Random &random) {
  std::optional<Node *> start =
      random.pick(nodesWhere(module, [](const Node &node) { return isReduction(node) && waitOf(node); }));
  if (!start)
    return std::nullopt;
  std::string what = toText(**start);
  Node *wait = waitOf(**start);
  Value *operand = (*start)->operand(0);
  bool scatters = (*start)->op() == Op::reduceScatterStart;
  CollectiveAttributes over = (*start)->get<CollectiveAttributes>();
  over.id = -1;
  std::unique_ptr<AttributesBase> attributes;
  if (scatters)
    attributes = std::make_unique<Attributes<CollectiveAttributes>>(over);
  Node *instead = insertCompute(scatters ? Op::takeShard : Op::copy, {operand}, std::move(attributes), *wait, wait);
  instead->result()->place = wait->result()->place;
  wait->result()->replaceAllUsesWith(instead->result());
  wait->erase();
  (*start)->erase();
  return "its own operand instead of " + what;
}

std::optional<std::string> doubleReduce(Module &module, Random &random) {
  std::optional<Node *> start =
      random.pick(nodesWhere(module, [](const Node &node) { return isReduction(node) && waitOf(node); }));
  if (!start)
    return std::nullopt;
  Node *wait = waitOf(**start);
  Value *once = wait->result();
  Place place = once->place;
  once->place = (*start)->result()->place = freshPlace(module, Space::window, once->type().bytes());
  Builder builder(*wait->function(), wait->next());
  builder.inherit(*wait);
  CollectiveAttributes over = (*start)->get<CollectiveAttributes>();
  Node *again = builder.create(Op::allReduceStart, {once}, over);
  again->schedule.stream = (*start)->schedule.stream;
  again->schedule.workspaceBytes = (*start)->schedule.workspaceBytes;
  if (again->schedule.workspaceBytes > 0)
    again->schedule.workspace = freshPlace(module, Space::privateSpace, again->schedule.workspaceBytes);
  for (const std::unique_ptr<Use> &token : (*start)->afterTokens())
    again->addAfter(token->value());
  Node *secondWait = builder.create(Op::wait, {again->result()});
  again->result()->place = secondWait->result()->place = place;
  secondWait->schedule.stream = Stream::compute;
  std::vector<Use *> uses;
  for (Use *use = once->uses(); use; use = use->next())
    if (use->user() != again)
      uses.push_back(use);
  for (Use *use : uses)
    use->user()->setOperand(use->index(), secondWait->result());
  insertCompute(Op::free, {once}, nullptr, *wait, secondWait->next());
  renumber(module);
  return "summed again: " + toText(**start);
}

std::optional<std::string> swapCollectives(Module &module, Random &random) {
  std::vector<Node *> starts = nodesWhere(module, startsCollective);
  std::vector<size_t> firsts;
  for (size_t i = 0; i + 1 < starts.size(); ++i)
    if (starts[i]->function() == starts[i + 1]->function())
      firsts.push_back(i);
  std::optional<size_t> first = random.pick(firsts);
  if (!first)
    return std::nullopt;
  Node *a = starts[*first], *b = starts[*first + 1];
  std::string what = toText(*a) + " and " + toText(*b);
  if (random.coin())
    b->moveBefore(a);
  else
    std::swap(a->get<CollectiveAttributes>().id, b->get<CollectiveAttributes>().id);
  return "swapped " + what;
}

std::optional<std::string> changeGroup(Module &module, Random &random) {
  bool ofState = random.below(5) == 0;
  addAxes(module);
  if (ofState) {
    std::vector<State *> segments;
    for (State &state : module.states)
      if (!state.over.empty())
        segments.push_back(&state);
    std::optional<State *> segment = random.pick(segments);
    std::optional<const MeshAxis *> axis =
        segment ? random.pick(otherAxes(module, (*segment)->over)) : std::optional<const MeshAxis *>();
    if (!axis)
      return std::nullopt;
    (*segment)->over = (*axis)->name;
    return "segment " + (*segment)->name + " over " + (*axis)->name;
  }
  std::optional<Node *> node = random.pick(
      nodesWhere(module, [](const Node &node) { return startsCollective(node) || node.op() == Op::takeShard; }));
  if (!node)
    return std::nullopt;
  auto &attributes = (*node)->get<CollectiveAttributes>();
  std::string what = toText(**node);
  std::optional<const MeshAxis *> axis = random.pick(otherAxes(module, attributes.over.name));
  if (!axis)
    return std::nullopt;
  attributes.over.name = (*axis)->name;
  attributes.ranks = (*axis)->size;
  return "over " + (*axis)->name + " instead: " + what;
}

std::optional<std::string> startEarly(Module &module, Random &random) {
  std::optional<Node *> start = random.pick(nodesWhere(module, [](const Node &node) {
    return isStart(node) && (!node.afterTokens().empty() || node.operand(0)->definer());
  }));
  if (!start)
    return std::nullopt;
  std::string what = toText(**start);
  bool hasEdge = !(*start)->afterTokens().empty();
  Node *before = hasEdge ? (*start)->afterTokens()[0]->value()->definer() : (*start)->operand(0)->definer();
  // If the operand is the read of a state, the read moves along.
  Node *read = (*start)->operand(0)->definer();
  if (hasEdge && read && read->op() == Op::read && before->isBefore(read))
    read->moveBefore(before);
  Builder builder(*(*start)->function(), before);
  Node *early = builder.clone(**start, (*start)->operands());
  early->result()->place = (*start)->result()->place;
  early->schedule.workspace = (*start)->schedule.workspace;
  (*start)->result()->replaceAllUsesWith(early->result());
  (*start)->erase();
  renumber(module);
  return std::string(hasEdge ? "before its memory is free: " : "before its operand is made: ") + what;
}

/// A reader of a value that was copied between the device and its host reads the original instead.
std::optional<std::string> skipCopy(Module &module, Random &random) {
  std::optional<Node *> start = random.pick(nodesWhere(module, [](const Node &node) {
    const Node *wait = isStart(node) && !startsCollective(node) ? waitOf(node) : nullptr;
    return wait && wait->result()->hasUses();
  }));
  if (!start)
    return std::nullopt;
  std::string what = toText(**start);
  Use *use = waitOf(**start)->result()->uses();
  while (use->user()->op() == Op::free && use->next())
    use = use->next();
  use->user()->setOperand(use->index(), (*start)->operand(0));
  return "without " + what + ": " + toText(*use->user());
}

std::optional<std::string> changeStream(Module &module, Random &random) {
  std::optional<Node *> node =
      random.pick(nodesWhere(module, [](const Node &node) { return node.schedule.stream != Stream::none; }));
  if (!node)
    return std::nullopt;
  std::string what = toText(**node);
  std::vector<Stream> others;
  for (Stream stream : {Stream::none, Stream::compute, Stream::comm, Stream::reduce, Stream::copy, Stream::host})
    if (stream != (*node)->schedule.stream)
      others.push_back(stream);
  (*node)->schedule.stream = *random.pick(others);
  return "on(" + nameOf((*node)->schedule.stream).str() + ") instead: " + what;
}

} // namespace fsdpc::mutation
