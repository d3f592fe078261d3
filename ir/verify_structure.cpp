// (V1) to (V10): invariants of every stage.
#include "ir/carried.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/verify_rules.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc::rules {

namespace {

bool hasBytes(const Type &type) { return checkedBytes(type.dtype(), type.shape()).has_value(); }

llvm::Error checkUnique(llvm::StringRef kind, llvm::StringRef name, llvm::StringSet<> &seen) {
  if (name.empty())
    return broken("V1", "a " + kind + " has no name");
  if (!seen.insert(name).second)
    return broken("V1", "two of a kind: " + kind + " " + symbolText('@', name));
  return llvm::Error::success();
}

llvm::Error checkMesh(const Module &module) {
  llvm::StringSet<> axes;
  int64_t ranks = module.worldSize();
  for (const MeshAxis &axis : module.mesh) {
    if (llvm::Error error = checkUnique("mesh axis", axis.name, axes))
      return error;
    if (axis.size < 1 || axis.stride < 1 || ranks % (axis.size * axis.stride) != 0)
      return broken("V1", "mesh axis " + axis.name + " of " + llvm::Twine(axis.size) + " ranks, " +
                              llvm::Twine(axis.stride) + " apart, does not cut " + llvm::Twine(ranks) + " ranks");
  }
  return llvm::Error::success();
}

class StructureChecker {
public:
  explicit StructureChecker(const Module &module) : module(module) {
    for (const Unit &unit : module.units)
      unitNames.insert(unit.name);
  }
  llvm::Error run();

private:
  llvm::Error checkUnitNames();
  llvm::Error checkFunction(const Function &function);
  llvm::Error checkEnds(const Function &function);
  llvm::Error checkArguments(const Function &function);
  llvm::Error checkNode(const Node &node);
  llvm::Error checkOperands(const Node &node);
  llvm::Error checkDescriptor(const Node &node);
  llvm::Error checkTypes(const Node &node);
  llvm::Error checkIndices(const Node &node);
  llvm::Error checkOrdering(const Node &node);
  llvm::Error checkState(const Node &node);
  const void *attributesId(Op op);

  const Module &module;
  llvm::StringSet<> unitNames;
  llvm::DenseSet<const Value *> defined; ///< in the current function, up to the current node
  llvm::DenseMap<unsigned, const void *> attributeIds;
};

llvm::Error StructureChecker::run() {
  llvm::DenseSet<unsigned> kinds;
  for (const std::unique_ptr<Function> &function : module.functions)
    if (!kinds.insert(static_cast<unsigned>(function->kind())).second)
      return broken("V2", *function, "defined twice");
  if (llvm::Error error = checkUnitNames())
    return error;
  for (const std::unique_ptr<Function> &function : module.functions)
    if (llvm::Error error = checkFunction(*function))
      return error;
  return llvm::Error::success();
}

llvm::Error StructureChecker::checkUnitNames() {
  auto check = [&](llvm::StringRef kind, llvm::StringRef name, llvm::StringRef unit) -> llvm::Error {
    if (unit.empty() || unitNames.contains(unit))
      return llvm::Error::success();
    return broken("V6",
                  kind + " " + symbolText('@', name) + " belongs to " + symbolText('@', unit) + ", which is no unit");
  };
  for (const State &state : module.states)
    if (llvm::Error error = check("state", state.name, state.unit))
      return error;
  for (const Parameter &parameter : module.parameters)
    if (llvm::Error error = check("parameter", parameter.name, parameter.unit))
      return error;
  return llvm::Error::success();
}

llvm::Error StructureChecker::checkFunction(const Function &function) {
  defined.clear();
  if (llvm::Error error = checkArguments(function))
    return error;
  for (Node *node : function)
    if (llvm::Error error = checkNode(*node))
      return error;
  return checkEnds(function);
}

llvm::Error StructureChecker::checkArguments(const Function &function) {
  llvm::StringSet<> names;
  for (const Argument &argument : function.arguments()) {
    if (argument.name.empty() || !names.insert(argument.name).second)
      return broken("V2", function, "two arguments are called '" + argument.name + "', or one has no name");
    if (argument.value->type().isToken() || !hasBytes(argument.value->type()))
      return broken("V2", function, "argument '" + argument.name + "' is no tensor that fits in memory");
    defined.insert(argument.value.get());
  }
  return llvm::Error::success();
}

llvm::Error StructureChecker::checkEnds(const Function &function) {
  for (Node *node : function)
    if (node->op() == Op::ret && node->next())
      return broken("V2", *node, "nodes follow the return");
  if (!function.returnNode())
    return broken("V2", function, "does not end in a return");
  return llvm::Error::success();
}

llvm::Error StructureChecker::checkNode(const Node &node) {
  using Check = llvm::Error (StructureChecker::*)(const Node &);
  static constexpr Check checks[] = {&StructureChecker::checkOperands, &StructureChecker::checkDescriptor,
                                     &StructureChecker::checkIndices,  &StructureChecker::checkOrdering,
                                     &StructureChecker::checkTypes,    &StructureChecker::checkState};
  for (Check check : checks)
    if (llvm::Error error = (this->*check)(node))
      return error;
  for (unsigned i = 0; i < node.resultCount(); ++i)
    defined.insert(node.result(i));
  return llvm::Error::success();
}

llvm::Error StructureChecker::checkOperands(const Node &node) {
  for (unsigned i = 0; i < node.operandCount(); ++i)
    if (!defined.contains(node.operand(i)))
      return broken("V3", node, "operand " + llvm::Twine(i) + " is not defined before it is used");
  for (const std::unique_ptr<Use> &use : node.afterTokens())
    if (!defined.contains(use->value()))
      return broken("V3", node, "a token in after(...) is not defined before it is used");
  return llvm::Error::success();
}

const void *StructureChecker::attributesId(Op op) {
  auto [entry, isNew] = attributeIds.try_emplace(static_cast<unsigned>(op), nullptr);
  if (isNew && infoOf(op).makeAttributes)
    entry->second = infoOf(op).makeAttributes()->typeId();
  return entry->second;
}

llvm::Error StructureChecker::checkDescriptor(const Node &node) {
  const OpInfo &info = infoOf(node);
  if (node.operandCount() < info.minOperands() || node.operandCount() > info.maxOperands())
    return broken("V4", node,
                  info.name + llvm::Twine(" cannot have ") + llvm::Twine(node.operandCount()) + " operands");
  const void *id = node.attributes() ? node.attributes()->typeId() : nullptr;
  if (id != attributesId(node.op()))
    return broken("V4", node, info.name + llvm::Twine(" has the attributes of another op"));
  return llvm::Error::success();
}

llvm::Error StructureChecker::checkTypes(const Node &node) {
  llvm::SmallVector<Type, 4> operands;
  for (unsigned i = 0; i < node.operandCount(); ++i)
    operands.push_back(node.operand(i)->type());
  llvm::SmallVector<Type, 2> results;
  if (llvm::Error error = infoOf(node).infer(operands, node.attributes(), results))
    return broken("V5", node, llvm::toString(std::move(error)));
  if (results.size() != node.resultCount())
    return broken("V5", node,
                  infoOf(node).name + llvm::Twine(" has ") + llvm::Twine(results.size()) + " results, not " +
                      llvm::Twine(node.resultCount()));
  for (unsigned i = 0; i < results.size(); ++i)
    if (!(results[i] == node.result(i)->type()))
      return broken("V5", node, "result " + llvm::Twine(i) + " must be " + toString(results[i]));
  return llvm::Error::success();
}

llvm::Error StructureChecker::checkIndices(const Node &node) {
  auto inside = [](int32_t index, size_t size) { return index >= -1 && index < static_cast<int64_t>(size); };
  if (!inside(node.unit, module.units.size()) || !inside(node.section.unit, module.units.size()))
    return broken("V6", node, "its unit does not exist");
  if (!inside(node.schedule.outline, module.outlines.size()))
    return broken("V6", node, "its outline does not exist");
  return llvm::Error::success();
}

llvm::Error StructureChecker::checkOrdering(const Node &node) {
  for (const std::unique_ptr<Use> &use : node.afterTokens())
    if (!use->value()->type().isToken())
      return broken("V7", node, "after(...) names a value that is no token");
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    const Type &type = node.operand(i)->type();
    if (type.isToken())
      return broken("V7", node, "a token is not an operand: it belongs in after(...)");
    if (type.isFuture() && node.op() != Op::wait && node.op() != Op::ret)
      return broken("V7", node, "a future is used before its wait");
  }
  return llvm::Error::success();
}

llvm::Error StructureChecker::checkState(const Node &node) {
  if (node.op() == Op::tap) {
    const std::string &name = node.get<TapAttributes>().parameter.name;
    bool known = module.parameters.empty() || module.parameter(name);
    return known ? llvm::Error::success() : broken("V8", node, symbolText('@', name) + " is no parameter");
  }
  bool makes = node.op() == Op::read || node.op() == Op::unstash;
  if (!makes && node.op() != Op::write && node.op() != Op::stash)
    return llvm::Error::success();
  const std::string &name = node.get<StateAttributes>().state.name;
  const State *state = module.state(name);
  if (!state)
    return broken("V8", node, symbolText('@', name) + " is no state");
  const Type &type = makes ? node.result()->type() : node.operand(0)->type();
  // A gradient may have been summed in 16 bits.
  bool isGradient = node.op() == Op::stash || node.op() == Op::unstash;
  bool fits = isGradient && isFloat(type.dtype()) && byteSize(type.dtype()) <= byteSize(state->type.dtype());
  if (!(type == (fits ? state->type.withDType(type.dtype()) : state->type)))
    return broken("V8", node, "the state is " + toString(state->type) + ", not " + toString(type));
  return llvm::Error::success();
}

/// Results of earlier functions of the step, by name.
using Returned = llvm::StringMap<std::pair<const Function *, Type>>;

llvm::Error checkCarriedType(const Function &function, const Argument &argument, const Function &producer,
                             const Type &type) {
  if (type == argument.value->type())
    return llvm::Error::success();
  return broken("V9", function,
                "the carried argument '" + argument.name + "' is " + toString(argument.value->type()) + ", but " +
                    nameOf(producer.kind()) + " returns " + toString(type));
}

/// For each state, the last node of a step that writes it.
llvm::StringMap<const Node *> lastWrites(const Module &module) {
  llvm::StringMap<const Node *> last;
  for (const Function *function : inCallOrder(module))
    for (Node *node : *function)
      if (node->op() == Op::write)
        last[node->get<StateAttributes>().state.name] = node;
  return last;
}

/// An argument that no earlier function returns.
llvm::Error checkCarriedOver(const CarriedOver &carried, const llvm::StringMap<const Node *> &writes) {
  const Function &receiver = *carried.receiver;
  if (!carried.future || receiver.kind() > FunctionKind::update)
    return broken("V9", receiver, "no earlier function returns the carried argument '" + carried.argument->name + "'");
  if (!carried.start)
    return broken("V9", receiver, "'" + carried.argument->name + "' is left to the next step, but it gathers no state");
  // A version written by the same function is gathered directly from the written value, which orders the two. A read
  // would not.
  const Node *last = writes.lookup(carried.state());
  bool isLast = last == carried.access || (carried.access->op() == Op::read &&
                                           (!last || last->function()->kind() < carried.start->function()->kind()));
  if (!isLast)
    return broken("V9", *last,
                  "'" + carried.argument->name + "' is left to the next step, but it gathers an older version");
  return checkCarriedType(receiver, *carried.argument, *carried.start->function(), carried.future->type());
}

} // namespace

llvm::Error checkTables(const Module &module) {
  llvm::StringSet<> units, outlines, states, parameters;
  for (const Unit &unit : module.units)
    if (llvm::Error error = checkUnique("unit", unit.name, units))
      return error;
  for (const std::string &outline : module.outlines)
    if (llvm::Error error = checkUnique("outline", outline, outlines))
      return error;
  for (const Parameter &parameter : module.parameters) {
    if (llvm::Error error = checkUnique("parameter", parameter.name, parameters))
      return error;
    if (!parameter.type.isTensor() || !hasBytes(parameter.type))
      return broken("V1", "parameter " + symbolText('@', parameter.name) + " is no tensor that fits in memory");
  }
  for (const State &state : module.states) {
    if (llvm::Error error = checkUnique("state", state.name, states))
      return error;
    if (!state.type.isTensor() || !hasBytes(state.type))
      return broken("V1", "state " + symbolText('@', state.name) + " is no tensor that fits in memory");
  }
  return checkMesh(module);
}

llvm::Error checkStructure(const Module &module) { return StructureChecker(module).run(); }

llvm::Error checkInterfaces(const Module &module) {
  const std::vector<CarriedOver> carriedOver = carriedOverSteps(module);
  const llvm::StringMap<const Node *> writes =
      carriedOver.empty() ? llvm::StringMap<const Node *>() : lastWrites(module);
  for (const CarriedOver &carried : carriedOver)
    if (llvm::Error error = checkCarriedOver(carried, writes))
      return error;
  Returned returned;
  llvm::StringMap<const Value *> inputs;
  for (const Function *function : inCallOrder(module)) {
    for (const Argument &argument : function->arguments()) {
      if (argument.kind == ArgumentKind::carry) {
        if (auto found = returned.find(argument.name); found != returned.end())
          if (llvm::Error error = checkCarriedType(*function, argument, *found->second.first, found->second.second))
            return error;
        continue;
      }
      const Value *first = inputs.try_emplace(argument.name, argument.value.get()).first->second;
      if (!(first->type() == argument.value->type()) || !(first->place == argument.value->place))
        return broken("V10", *function,
                      "input '" + argument.name + "' has another type or place than in " +
                          nameOf(first->function()->kind()));
    }
    const Node *ret = function->returnNode();
    const std::vector<std::string> &names = ret->get<ReturnAttributes>().names;
    for (unsigned i = 0; i < ret->operandCount(); ++i)
      returned[names[i]] = {function, ret->operand(i)->type()};
  }
  return llvm::Error::success();
}

} // namespace fsdpc::rules
