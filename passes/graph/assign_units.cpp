#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "passes/graph/unit_plan.h"
#include "passes/passes.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace {

/// Node::source is "module.path|ONNX name".
llvm::StringRef scopeOf(const Node &node) {
  auto [scope, name] = llvm::StringRef(node.source).split('|');
  return name.empty() ? llvm::StringRef() : scope;
}

/// Nodes without operands are positioned where they are used: reads, constants, iotas.
bool isSource(const Node &node) { return node.operandCount() == 0 && node.op() != Op::ret; }

/// True if each unit may have its own copy. False for constants that take memory.
bool isRepeatable(const Node &node) {
  return node.op() != Op::constant || node.get<ConstantAttributes>().value.isSplat();
}

const State *parameterState(const Node &node) {
  if (node.op() != Op::read)
    return nullptr;
  const State *state = stateOf(node);
  return state && state->role == StateRole::parameter ? state : nullptr;
}

bool onlyMoves(const Node &node) {
  return node.op() == Op::reshape || node.op() == Op::transpose || node.op() == Op::broadcast || node.op() == Op::cast;
}

/// The number of nodes that compute with the value, through nodes that only move it.
int64_t computingUses(const Value &value) {
  int64_t count = 0;
  llvm::SmallVector<const Value *, 8> pending = {&value};
  while (!pending.empty())
    for (const Use *use = pending.pop_back_val()->uses(); use; use = use->next())
      if (onlyMoves(*use->user()))
        pending.push_back(use->user()->result());
      else
        ++count;
  return count;
}

UsedParameter describe(const State &state, const Node &user) {
  UsedParameter parameter{state.name, state.type.elements(), scopeOf(user).str(), "", false};
  llvm::StringRef owner = llvm::StringRef(state.name).rsplit('.').first;
  parameter.isNamed = owner.size() < state.name.size();
  parameter.module = parameter.isNamed ? owner.str() : !parameter.userScope.empty() ? parameter.userScope : state.name;
  return parameter;
}

std::vector<UsedParameter> usedParameters(const Function &function) {
  std::vector<UsedParameter> parameters;
  llvm::StringMap<bool> seen;
  for (const Node *node : function)
    for (const Value *operand : node->operands()) {
      const State *state = operand->definer() ? parameterState(*operand->definer()) : nullptr;
      if (!state || !seen.try_emplace(state->name, true).second)
        continue;
      parameters.push_back(describe(*state, *node));
      parameters.back().uses = computingUses(*operand);
    }
  return parameters;
}

/// Assigns every node its unit, and orders the function so that each unit's nodes are contiguous.
class SectionAssigner {
public:
  SectionAssigner(Function &function, const UnitPlan &plan) : function(function), plan(plan) {}
  void run();

private:
  int32_t preferredUnit(const Node &node);
  int32_t continuationFrom(int32_t block, int32_t unit);
  void chooseUnits();
  void reorder();
  void moveSources(Node *node);
  Value *sourceFor(Node *source, int32_t unit, Node *user);
  void stand(Node *node, int32_t unit) {
    node->unit = unit;
    node->section = {unit, Phase::forward};
  }

  Function &function;
  const UnitPlan &plan;
  int32_t latest = 0;                                          ///< the last unit so far
  llvm::StringMap<bool> begun;                                 ///< parameters that were already used
  llvm::DenseMap<std::pair<Node *, int32_t>, Value *> sources; ///< source and unit -> its result there
};

/// The unit that the node belongs to, provided that its operands are not in later units. -1: the unit of the preceding
/// nodes.
int32_t SectionAssigner::preferredUnit(const Node &node) {
  llvm::StringRef scope = scopeOf(node);
  int32_t block = plan.blockAround(scope), wish = -1;
  for (const Value *operand : node.operands()) {
    const State *state = operand->definer() ? parameterState(*operand->definer()) : nullptr;
    if (!state || !begun.try_emplace(state->name, true).second)
      continue;
    int32_t unit = plan.ofParameter.lookup(state->name);
    if (block >= 0 && unit != block)
      continue;
    auto section = plan.sectionOf.find(state->name);
    wish = std::max(wish, section == plan.sectionOf.end() ? unit : section->second);
  }
  if (wish >= 0 || block >= 0)
    return std::max(wish, block);
  auto module = plan.ofModule.find(scope);
  return module == plan.ofModule.end() ? -1 : module->second;
}

/// Nodes of a module that follow units inside it go to the module's continuation, if it has one.
int32_t SectionAssigner::continuationFrom(int32_t block, int32_t unit) {
  auto found = block < 0 || unit <= block ? plan.continuations.end() : plan.continuations.find(block);
  if (found == plan.continuations.end())
    return unit;
  auto behind = llvm::lower_bound(found->second, unit);
  return behind == found->second.end() ? unit : *behind;
}

/// A node is never placed before its operands, so the units' sections can follow each other.
void SectionAssigner::chooseUnits() {
  for (Node *node : function) {
    if (isSource(*node) || node->op() == Op::ret)
      continue;
    int32_t wish = preferredUnit(*node);
    int32_t unit = wish < 0 ? latest : wish;
    for (const Value *operand : node->operands())
      if (const Node *definer = operand->definer(); definer && !isSource(*definer))
        unit = std::max(unit, definer->unit);
    unit = continuationFrom(plan.blockAround(scopeOf(*node)), unit);
    stand(node, unit);
    latest = std::max(latest, unit);
  }
}

/// The source's result for users in `unit`. The source is moved or copied to right before its first user there.
Value *SectionAssigner::sourceFor(Node *source, int32_t unit, Node *user) {
  bool isFirst = sources.try_emplace({source, -1}, source->result()).second;
  if (!isFirst && !isRepeatable(*source))
    return source->result();
  auto [entry, isNew] = sources.try_emplace({source, unit}, source->result());
  if (!isNew)
    return entry->second;
  Node *here = source;
  if (isFirst) {
    source->moveBefore(user);
  } else {
    Builder builder(function, user);
    here = builder.clone(*source, {});
  }
  stand(here, unit);
  return entry->second = here->result();
}

void SectionAssigner::moveSources(Node *node) {
  for (unsigned i = 0; i < node->operandCount(); ++i)
    if (Node *definer = node->operand(i)->definer(); definer && isSource(*definer))
      if (Value *value = sourceFor(definer, node->op() == Op::ret ? latest : node->unit, node);
          value != node->operand(i))
        node->setOperand(i, value);
}

void SectionAssigner::reorder() {
  std::vector<Node *> order;
  for (Node *node : function)
    if (isSource(*node))
      stand(node, 0);
    else if (node->op() != Op::ret)
      order.push_back(node);
  llvm::stable_sort(order, [](const Node *a, const Node *b) { return a->unit < b->unit; });
  Node *ret = function.returnNode();
  for (Node *node : order) {
    node->moveBefore(ret);
    moveSources(node);
  }
  if (ret)
    moveSources(ret);
}

void SectionAssigner::run() {
  chooseUnits();
  reorder();
}

/// Parameters that no node reads join their block, else the last unit.
void assignParameters(Module &module, const UnitPlan &plan) {
  for (Parameter &parameter : module.parameters) {
    auto used = plan.ofParameter.find(parameter.name);
    int32_t unit = used != plan.ofParameter.end() ? used->second : plan.blockAround(parameter.name);
    parameter.unit = unit >= 0 ? plan.units[unit].name : plan.units.back().name;
  }
}

/// Limits --offload_params or --offload_optimizer to the first units, up to the share.
void limitOffload(Module &module, double share) {
  llvm::StringMap<int64_t> bytesOf;
  int64_t total = 0, taken = 0;
  for (const Parameter &parameter : module.parameters) {
    bytesOf[parameter.unit] += parameter.type.bytes();
    total += parameter.type.bytes();
  }
  for (Unit &unit : module.units) {
    if (static_cast<double>(taken) >= share * static_cast<double>(total))
      unit.choices.offload = Offload::none;
    taken += bytesOf.lookup(unit.name);
  }
}

std::string remarkOn(const UnitPlan &plan) {
  llvm::SmallVector<llvm::StringRef, 8> names;
  for (const Unit &unit : plan.units)
    names.push_back(unit.name);
  constexpr size_t maxNames = 6;
  std::string text = std::to_string(names.size()) + (names.size() == 1 ? " unit: " : " units: ");
  if (names.size() <= maxNames)
    return text + llvm::join(names, ", ");
  return text + llvm::join(llvm::ArrayRef(names).take_front(maxNames - 1), ", ") + ", ... " + names.back().str();
}

llvm::Error run(Module &module, const PassContext &context) {
  Function *forward = module.function(FunctionKind::forward);
  // Units that already exist (hand-written, or from a saved stage) are kept.
  if (!forward || !module.units.empty())
    return llvm::Error::success();
  llvm::Expected<UnitPlan> plan = planUnits(usedParameters(*forward), module.classes, context.options);
  if (!plan)
    return plan.takeError();
  module.units = plan->units;
  SectionAssigner(*forward, *plan).run();
  assignParameters(module, *plan);
  limitOffload(module, context.options.offloadShare);
  module.classes.clear();
  context.remarks.push_back(remarkOn(*plan));
  return applyUnitOverrides(module, *plan, context.options);
}

} // namespace

const Pass assignUnits = {"assign_units", Stage::graph, Stage::graph, /*optional=*/false, run};

} // namespace fsdpc
