#include "frontend/tools/reduce_edits.h"

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/reserved_names.h"
#include "passes/support/clone.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include <set>

namespace fsdpc {

namespace {

template <class Visit>
void forEachNode(const Module &module, Visit visit) {
  for (const std::unique_ptr<Function> &function : module.functions)
    for (Node *node : *function)
      visit(*node);
}

/// The nodes among [begin, end) of those that `matches` accepts, in order.
template <class Matches>
std::vector<Node *> nodesInRange(const Module &module, size_t begin, size_t end, Matches matches) {
  std::vector<Node *> nodes;
  size_t index = 0;
  forEachNode(module, [&](Node &node) {
    if (!matches(node))
      return;
    if (index >= begin && index < end)
      nodes.push_back(&node);
    ++index;
  });
  return nodes;
}

template <class Matches>
size_t countNodes(const Module &module, Matches matches) {
  size_t count = 0;
  forEachNode(module, [&](Node &node) { count += matches(node); });
  return count;
}

// ---- functions and their borders

size_t countFunctions(const Module &module) { return module.functions.size(); }

void dropFunctions(Module &module, size_t begin, size_t end) {
  module.functions.erase(module.functions.begin() + begin, module.functions.begin() + end);
}

size_t countResults(const Module &module) {
  size_t count = 0;
  for (const std::unique_ptr<Function> &function : module.functions)
    if (Node *node = function->returnNode())
      count += node->operandCount();
  return count;
}

void dropResults(Module &module, size_t begin, size_t end) {
  size_t index = 0;
  for (const std::unique_ptr<Function> &function : module.functions) {
    Node *old = function->returnNode();
    if (!old)
      continue;
    llvm::SmallVector<Value *, 8> values;
    std::vector<std::string> names;
    for (unsigned i = 0; i < old->operandCount(); ++i, ++index)
      if (index < begin || index >= end) {
        values.push_back(old->operand(i));
        names.push_back(old->get<ReturnAttributes>().names[i]);
      }
    Builder builder(*function, old);
    builder.inherit(*old);
    builder.ret(values, names)->schedule.stream = old->schedule.stream;
    old->erase();
  }
}

/// Visits each returned value with each operand of the node that makes it. The function could return that operand
/// instead.
template <class Visit>
void forEachEarlierResult(const Module &module, Visit visit) {
  for (const std::unique_ptr<Function> &function : module.functions)
    if (Node *ret = function->returnNode())
      for (unsigned i = 0; i < ret->operandCount(); ++i)
        if (const Node *definer = ret->operand(i)->definer())
          for (unsigned j = 0; j < definer->operandCount(); ++j)
            visit(*ret, i, definer->operand(j));
}

size_t countEarlierResults(const Module &module) {
  size_t count = 0;
  forEachEarlierResult(module, [&](Node &, unsigned, Value *) { ++count; });
  return count;
}

void returnEarlier(Module &module, size_t begin, size_t end) {
  struct Change {
    Node *ret;
    unsigned index;
    Value *value;
  };
  std::vector<Change> changes;
  size_t place = 0;
  forEachEarlierResult(module, [&](Node &ret, unsigned index, Value *value) {
    if (place >= begin && place < end)
      changes.push_back({&ret, index, value});
    ++place;
  });
  for (const Change &change : changes)
    change.ret->setOperand(change.index, change.value);
}

bool isUnused(const Argument &argument) { return !argument.value->hasUses(); }

size_t countUnusedArguments(const Module &module) {
  size_t count = 0;
  for (const std::unique_ptr<Function> &function : module.functions)
    count += llvm::count_if(function->arguments(), isUnused);
  return count;
}

void dropUnusedArguments(Module &module, size_t begin, size_t end) {
  size_t index = countUnusedArguments(module);
  for (const std::unique_ptr<Function> &function : llvm::reverse(module.functions))
    for (unsigned i = static_cast<unsigned>(function->arguments().size()); i-- > 0;)
      if (isUnused(function->arguments()[i]) && --index >= begin && index < end)
        function->eraseArgument(i);
}

// ---- nodes

/// Returns whether the results of the node can be replaced by other values.
bool isReplaceable(const Node &node) {
  if (node.op() == Op::constant || node.resultCount() == 0)
    return false;
  for (unsigned i = 0; i < node.resultCount(); ++i)
    if (!node.result(i)->type().isTensor())
      return false;
  return true;
}

/// A value that most ops accept, also log and division.
double ordinaryNumber(DType dtype) { return isFloat(dtype) ? 0.5 : 0; }

void replaceByConstants(Module &module, size_t begin, size_t end) {
  for (Node *node : nodesInRange(module, begin, end, isReplaceable)) {
    Builder builder(*node->function(), node);
    builder.inherit(*node);
    for (unsigned i = 0; i < node->resultCount(); ++i) {
      Value *result = node->result(i);
      if (!result->hasUses())
        continue;
      Value *constant = builder.constant(result->type(), ordinaryNumber(result->type().dtype()));
      constant->definer()->schedule.stream = node->schedule.stream;
      constant->setName(result->name());
      result->replaceAllUsesWith(constant);
    }
    node->erase();
  }
}

/// An operand of the result's type, or an argument; null if there is none.
Value *standInFor(const Node &node, const Value &result) {
  for (Value *operand : node.operands())
    if (operand->type() == result.type())
      return operand;
  for (const Argument &argument : node.function()->arguments())
    if (argument.value->type() == result.type())
      return argument.value.get();
  return nullptr;
}

bool hasStandIns(const Node &node) {
  if (!isReplaceable(node) || node.op() == Op::read)
    return false;
  for (unsigned i = 0; i < node.resultCount(); ++i)
    if (node.result(i)->hasUses() && !standInFor(node, *node.result(i)))
      return false;
  return true;
}

void bypass(Module &module, size_t begin, size_t end) {
  for (Node *node : nodesInRange(module, begin, end, hasStandIns)) {
    if (!hasStandIns(*node)) // its operand may have been replaced meanwhile
      continue;
    for (unsigned i = 0; i < node->resultCount(); ++i)
      if (node->result(i)->hasUses())
        node->result(i)->replaceAllUsesWith(standInFor(*node, *node->result(i)));
    node->erase();
  }
}

/// write, tap, free: no other node uses their results.
bool isEffect(const Node &node) {
  if (node.op() == Op::ret || infoOf(node).has(pure))
    return false;
  for (unsigned i = 0; i < node.resultCount(); ++i)
    if (node.result(i)->hasUses())
      return false;
  return true;
}

void dropEffects(Module &module, size_t begin, size_t end) {
  for (Node *node : nodesInRange(module, begin, end, isEffect))
    node->erase();
}

// ---- sizes

/// Dims above 1 of states and arguments, largest first. All other dims follow from these.
std::vector<int64_t> dimsOf(const Module &module) {
  std::set<int64_t, std::greater<>> dims;
  auto note = [&](const Type &type) {
    for (int64_t dim : type.shape())
      if (dim > 1)
        dims.insert(dim);
  };
  for (const State &state : module.states)
    note(state.type);
  for (const std::unique_ptr<Function> &function : module.functions)
    for (const Argument &argument : function->arguments())
      note(argument.value->type());
  return {dims.begin(), dims.end()};
}

/// Each dim d is tried as 1, d / 2 and d - 1.
constexpr size_t sizesPerDim = 3;

size_t countSizes(const Module &module) { return dimsOf(module).size() * sizesPerDim; }

/// Replaces the dim `from` by `to` in all shapes.
class DimReplacer final : public AttributeVisitor {
public:
  DimReplacer(int64_t from, int64_t to) : from(from), to(to) {}
  void replaceIn(llvm::MutableArrayRef<int64_t> shape) { std::replace(shape.begin(), shape.end(), from, to); }
  Type replaced(const Type &type) {
    Shape shape(type.shape());
    replaceIn(shape);
    return type.withShape(shape);
  }
  void field(llvm::StringRef, int64_t &) override {}
  void field(llvm::StringRef, double &) override {}
  void field(llvm::StringRef, bool &) override {}
  void field(llvm::StringRef, std::string &) override {}
  void field(llvm::StringRef, DType &) override {}
  void field(llvm::StringRef, Symbol &) override {}
  void field(llvm::StringRef name, Shape &value) override {
    if (name == "shape" || name == "sizes" || name == "kernel")
      replaceIn(value);
  }
  void field(llvm::StringRef, std::vector<std::string> &) override {}
  void field(llvm::StringRef, Dense &) override {}
  void field(llvm::StringRef, Expression &) override {}

private:
  int64_t from, to;
};

/// A constant of another shape keeps the first of its elements.
void trimConstant(ConstantAttributes &constant) {
  int64_t wanted = checkedElements(constant.shape).value_or(0);
  if (constant.value.isSplat() || constant.value.storedElements() < wanted)
    return;
  llvm::ArrayRef<uint8_t> bytes = constant.value.bytes();
  auto count = static_cast<size_t>(wanted * byteSize(constant.value.dtype()));
  constant.value = Dense(constant.value.dtype(), {bytes.begin(), bytes.begin() + count});
}

/// Infers the result types again from the operands' types. Types that no shape rule accepts stay as they are, and the
/// verifier rejects them.
void inferAnew(Node &node) {
  llvm::SmallVector<Type, 4> operands, results;
  for (Value *operand : node.operands())
    operands.push_back(operand->type());
  if (llvm::Error error = infoOf(node).infer(operands, node.attributes(), results))
    return llvm::consumeError(std::move(error));
  for (unsigned i = 0; i < node.resultCount() && i < results.size(); ++i)
    node.result(i)->setType(results[i]);
}

void shrinkOne(Module &module, int64_t from, int64_t to) {
  DimReplacer replacer(from, to);
  for (State &state : module.states)
    state.type = replacer.replaced(state.type);
  for (Parameter &parameter : module.parameters)
    parameter.type = replacer.replaced(parameter.type);
  for (const std::unique_ptr<Function> &function : module.functions) {
    for (const Argument &argument : function->arguments())
      argument.value->setType(replacer.replaced(argument.value->type()));
    for (Node *node : *function) {
      if (node->attributes())
        node->attributes()->visit(replacer);
      if (node->op() == Op::constant)
        trimConstant(node->get<ConstantAttributes>());
      inferAnew(*node);
    }
  }
}

void shrinkDims(Module &module, size_t begin, size_t end) {
  std::vector<int64_t> dims = dimsOf(module);
  for (size_t i = begin; i < end; ++i) {
    int64_t dim = dims[i / sizesPerDim];
    const int64_t smaller[sizesPerDim] = {1, std::max<int64_t>(dim / 2, 1), dim - 1};
    shrinkOne(module, dim, smaller[i % sizesPerDim]);
  }
}

constexpr ReductionEdit edits[] = {
    {"functions", countFunctions, dropFunctions},
    {"results", countResults, dropResults},
    {"earlier results", countEarlierResults, returnEarlier},
    {"replaced", [](const Module &module) { return countNodes(module, isReplaceable); }, replaceByConstants},
    {"bypassed", [](const Module &module) { return countNodes(module, hasStandIns); }, bypass},
    {"effects", [](const Module &module) { return countNodes(module, isEffect); }, dropEffects},
    {"arguments", countUnusedArguments, dropUnusedArguments},
    {"dims", countSizes, shrinkDims},
};

// ---- leftovers

llvm::StringSet<> namedStates(const Module &module) {
  llvm::StringSet<> names;
  forEachNode(module, [&](Node &node) {
    if (node.op() == Op::read || node.op() == Op::write || node.op() == Op::stash || node.op() == Op::unstash)
      names.insert(node.get<StateAttributes>().state.name);
    if (node.op() == Op::tap)
      names.insert(node.get<TapAttributes>().parameter.name);
    if (node.op() == Op::ret)
      for (const std::string &result : node.get<ReturnAttributes>().names)
        names.insert(llvm::StringRef(result).starts_with(names::gradientPrefix)
                         ? result.substr(names::gradientPrefix.size())
                         : result);
  });
  return names;
}

void dropStates(Module &module) {
  llvm::StringSet<> used = namedStates(module);
  for (const State &state : module.states)
    if (used.contains(state.name)) {
      used.insert(state.owner);
      for (const SegmentSlot &slot : state.slots)
        used.insert(slot.parameter);
    }
  std::deque<State> kept;
  for (State &state : module.states)
    if (used.contains(state.name))
      kept.push_back(std::move(state));
  module.replaceStates(std::move(kept));
  llvm::erase_if(module.parameters, [&](const Parameter &parameter) { return !used.contains(parameter.name); });
}

void dropUnits(Module &module) {
  std::vector<bool> used(module.units.size(), false);
  auto note = [&](int32_t unit) {
    if (unit >= 0)
      used[unit] = true;
  };
  forEachNode(module, [&](Node &node) {
    note(node.unit);
    note(node.section.unit);
  });
  for (const State &state : module.states)
    note(module.unitIndex(state.unit));
  for (const Parameter &parameter : module.parameters)
    note(module.unitIndex(parameter.unit));
  std::vector<int32_t> renumbered(module.units.size(), -1);
  std::vector<Unit> kept;
  for (size_t i = 0; i < used.size(); ++i)
    if (used[i]) {
      renumbered[i] = static_cast<int32_t>(kept.size());
      kept.push_back(std::move(module.units[i]));
    }
  module.units = std::move(kept);
  forEachNode(module, [&](Node &node) {
    node.unit = node.unit < 0 ? -1 : renumbered[node.unit];
    node.section.unit = node.section.unit < 0 ? -1 : renumbered[node.section.unit];
  });
}

} // namespace

llvm::ArrayRef<ReductionEdit> reductionEdits() { return edits; }

void removeLeftovers(Module &module) {
  for (const std::unique_ptr<Function> &function : module.functions)
    eraseDeadNodes(*function);
  dropStates(module);
  dropUnits(module);
}

} // namespace fsdpc
