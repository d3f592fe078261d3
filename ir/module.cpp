#include "ir/module.h"

#include "ir/op.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

namespace {
constexpr llvm::StringRef stageNames[] = {"graph", "train", "sharded", "async", "planned"};
// Keys of one function's order are this far apart, so most insertions need no renumbering.
constexpr uint64_t orderGap = uint64_t(1) << 20;
} // namespace

llvm::StringRef nameOf(Stage stage) { return stageNames[static_cast<size_t>(stage)]; }

std::optional<Stage> stageFromName(llvm::StringRef name) {
  for (size_t i = 0; i < std::size(stageNames); ++i)
    if (stageNames[i] == name)
      return static_cast<Stage>(i);
  return std::nullopt;
}

llvm::StringRef nameOf(FunctionKind kind) {
  static constexpr llvm::StringRef names[] = {"forward",   "prologue", "micro_step", "tap_gradients",   "update",
                                              "eval_step", "predict",  "export",     "export_averages", "start"};
  return names[static_cast<size_t>(kind)];
}

llvm::StringRef nameOf(InitialKind kind) {
  static constexpr llvm::StringRef names[] = {"constant", "uniform", "normal"};
  return names[static_cast<size_t>(kind)];
}

llvm::StringRef nameOf(StateRole role) {
  static constexpr llvm::StringRef names[] = {"parameter", "segment", "replica",     "optimizer",
                                              "scalar",    "buffer",  "accumulator", "table"};
  return names[static_cast<size_t>(role)];
}

Function::~Function() {
  for (Node *node = first; node; node = node->next())
    node->dropOperands();
  while (first) {
    Node *node = first;
    unlink(node);
    delete node;
  }
}

Value *Function::addArgument(ArgumentKind kind, llvm::StringRef name, Type type) {
  auto value = std::make_unique<Value>();
  value->valueType = std::move(type);
  value->valueName = name.str();
  value->parent = this;
  value->index = static_cast<unsigned>(argumentList.size());
  argumentList.push_back({kind, name.str(), std::move(value)});
  return argumentList.back().value.get();
}

Value *Function::argument(llvm::StringRef name) const {
  for (const Argument &argument : argumentList)
    if (argument.name == name)
      return argument.value.get();
  return nullptr;
}

void Function::eraseArgument(unsigned index) {
  assert(!argumentList[index].value->hasUses() && "an erased argument is unused");
  argumentList.erase(argumentList.begin() + index);
  for (unsigned i = index; i < argumentList.size(); ++i)
    argumentList[i].value->index = i;
}

Node *Function::returnNode() const { return last && last->op() == Op::ret ? last : nullptr; }

void Function::insert(Node *node, Node *before) {
  node->following = before;
  node->preceding = before ? before->preceding : last;
  (node->preceding ? node->preceding->following : first) = node;
  (before ? before->preceding : last) = node;
  ++count;
  uint64_t low = node->preceding ? node->preceding->order : 0;
  uint64_t high = before ? before->order : low + 2 * orderGap;
  node->order = low + (high - low) / 2;
  orderValid = orderValid && node->order > low && node->order < high;
}

void Function::unlink(Node *node) {
  (node->preceding ? node->preceding->following : first) = node->following;
  (node->following ? node->following->preceding : last) = node->preceding;
  --count;
}

void Function::renumber() const {
  uint64_t order = 0;
  for (Node *node = first; node; node = node->following)
    node->order = order += orderGap;
  orderValid = true;
}

Parameter *Module::parameter(llvm::StringRef name) {
  return const_cast<Parameter *>(static_cast<const Module *>(this)->parameter(name));
}

const Parameter *Module::parameter(llvm::StringRef name) const {
  // The list is filled once and then only read. The index is rebuilt when its size differs.
  if (parameterByName.size() != parameters.size()) {
    parameterByName.clear();
    for (size_t i = 0; i < parameters.size(); ++i)
      parameterByName[parameters[i].name] = i;
  }
  auto found = parameterByName.find(name);
  return found == parameterByName.end() ? nullptr : &parameters[found->second];
}

State *Module::state(llvm::StringRef name) { return stateByName.lookup(name); }
const State *Module::state(llvm::StringRef name) const { return stateByName.lookup(name); }

State &Module::addState(State state) {
  assert(!stateByName.contains(state.name) && "state names are unique");
  states.push_back(std::move(state));
  stateByName[states.back().name] = &states.back();
  return states.back();
}

void Module::replaceStates(std::deque<State> all) {
  states = std::move(all);
  stateByName.clear();
  for (State &state : states)
    stateByName[state.name] = &state;
}

Function *Module::function(FunctionKind kind) const {
  for (const std::unique_ptr<Function> &function : functions)
    if (function->kind() == kind)
      return function.get();
  return nullptr;
}

Function *Module::addFunction(FunctionKind kind) {
  assert(!function(kind) && "a module has at most one function of a kind");
  functions.push_back(std::make_unique<Function>(this, kind));
  return functions.back().get();
}

int64_t Module::worldSize() const {
  int64_t ranks = 1;
  for (const MeshAxis &axis : mesh)
    ranks = std::max(ranks, axis.size * axis.stride);
  return ranks;
}

const MeshAxis *Module::axis(llvm::StringRef name) const {
  auto found = llvm::find_if(mesh, [&](const MeshAxis &axis) { return axis.name == name; });
  return found == mesh.end() ? nullptr : &*found;
}

int32_t Module::unitIndex(llvm::StringRef name) const {
  auto isCurrent = [&](auto found) {
    return found != unitsByName.end() && static_cast<size_t>(found->second) < units.size() &&
           units[found->second].name == name;
  };
  if (name.empty())
    return -1;
  if (auto found = unitsByName.find(name); isCurrent(found))
    return found->second;
  unitsByName.clear(); // passes edit `units` directly
  for (size_t i = 0; i < units.size(); ++i)
    unitsByName.try_emplace(units[i].name, static_cast<int32_t>(i));
  auto found = unitsByName.find(name);
  return found == unitsByName.end() ? -1 : found->second;
}

bool Module::prefetchesForward(int32_t unit) const {
  return (unit < 0 ? std::nullopt : units[unit].choices.forwardPrefetch).value_or(decisions.forwardPrefetch);
}

BackwardPrefetch Module::backwardPrefetch(int32_t unit) const {
  return (unit < 0 ? std::nullopt : units[unit].choices.backwardPrefetch).value_or(decisions.backwardPrefetch);
}

int32_t Module::addUnit(Unit unit) {
  units.push_back(std::move(unit));
  return static_cast<int32_t>(units.size()) - 1;
}

} // namespace fsdpc
