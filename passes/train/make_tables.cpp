// Values that depend on nothing: tables of angles, positions, constants. The program computes those that are worth
// their memory once, at start.
#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "passes/graph/rewrite.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/Sequence.h"

namespace fsdpc {

namespace {

/// A table costs memory during the whole step. Where backward reads the value, it would be kept until then anyway.
constexpr int64_t maxBytesForForward = 1 << 20;
/// Vector instructions per element from which on computing costs more than reading.
constexpr double costlyOperations = 4;

int64_t operandBytes(const Node &node) {
  int64_t bytes = 0;
  for (const Value *operand : node.operands())
    bytes += operand->type().bytes();
  return bytes;
}

/// A large constant is copied to its place in every call.
bool isLargeConstant(const Node &node, int64_t minBytes) {
  return node.op() == Op::constant && node.result()->type().bytes() >= minBytes &&
         !node.get<ConstantAttributes>().value.isSplat();
}

bool isCostly(const Node &node, int64_t minBytes) {
  const OpInfo &info = infoOf(node);
  if (node.op() == Op::constant)
    return isLargeConstant(node, minBytes);
  if (node.op() == Op::iota || node.op() == Op::broadcast || info.has(aliasesOperand))
    return false;
  return !info.has(elementwise) || info.element.operations >= costlyOperations;
}

/// A value of a function that may become a table.
struct Candidate {
  Value *value = nullptr;
  bool isWorthMemory = false;
};

/// The candidates of one function.
class Finder {
public:
  Finder(Function &function, int64_t minBytes) : function(function), minBytes(minBytes) {}

  /// In the order of the function.
  std::vector<Value *> find() {
    for (Node *node : function)
      if (infoOf(*node).has(pure) && !infoOf(*node).has(usesEnvironment) && areOperandsClosed(*node))
        closed.insert(node);
    for (Node *node = function.back(); node; node = node->previous())
      if (closed.contains(node))
        markWanted(*node);
    std::vector<Value *> found;
    for (Node *node : function)
      if (closed.contains(node))
        choose(*node, found);
    return found;
  }

  /// True if backward reads it, perhaps through nodes that also depend on nothing.
  bool isReadInBackward(const Value &value) const { return readInBackward.contains(&value); }

private:
  bool areOperandsClosed(const Node &node) const {
    return llvm::all_of(node.operands(),
                        [&](const Value *value) { return value->definer() && closed.contains(value->definer()); });
  }

  /// Cheap nodes whose results are larger than what they read stay in the step, and so do views.
  bool staysInStep(const Node &node) const {
    return infoOf(node).has(aliasesOperand) || node.op() == Op::broadcast ||
           (!isCostly(node, minBytes) && node.operandCount() > 0 && node.result()->type().bytes() > operandBytes(node));
  }

  /// In reverse order, so that users come first.
  void markWanted(const Node &node) {
    for (unsigned i = 0; i < node.resultCount(); ++i)
      for (const Use *use = node.result(i)->uses(); use; use = use->next()) {
        const Node &user = *use->user();
        const bool passesOn = closed.contains(&user) && staysInStep(user) && wanted.contains(user.result());
        if (!closed.contains(&user) || passesOn)
          wanted.insert(node.result(i));
        const bool leadsToBackward =
            closed.contains(&user) && llvm::any_of(llvm::seq(user.resultCount()), [&](unsigned result) {
              return readInBackward.contains(user.result(result));
            });
        if (user.section.phase == Phase::backward || leadsToBackward)
          readInBackward.insert(node.result(i));
      }
  }

  void choose(const Node &node, std::vector<Value *> &found) {
    bool isWorthIt = isCostly(node, minBytes);
    for (const Value *operand : node.operands())
      isWorthIt |= pending.contains(operand);
    if (!isWorthIt)
      return;
    for (unsigned i = 0; i < node.resultCount(); ++i) {
      Value *value = node.result(i);
      const bool isTable =
          wanted.contains(value) && !staysInStep(node) && value->type().isTensor() && value->type().bytes() >= minBytes;
      if (isTable)
        found.push_back(value);
      else
        pending.insert(value);
    }
  }

  Function &function;
  const int64_t minBytes;
  llvm::DenseSet<const Node *> closed;   ///< pure nodes that depend on nothing
  llvm::DenseSet<const Value *> wanted;  ///< by nodes that stay in the step
  llvm::DenseSet<const Value *> pending; ///< costly, and no table so far
  llvm::DenseSet<const Value *> readInBackward;
};

class TableMaker {
public:
  TableMaker(Module &module, int64_t minBytes)
      : module(module), minBytes(minBytes), start(*module.addFunction(FunctionKind::start)) {}

  void run() {
    for (FunctionKind kind : {FunctionKind::microStep, FunctionKind::evalStep, FunctionKind::predict})
      if (Function *function = module.function(kind))
        collect(*function);
    if (makeStates())
      return;
    std::erase_if(module.functions, [&](const auto &function) { return function.get() == &start; });
  }

private:
  void collect(Function &function) {
    Finder finder(function, minBytes);
    ValueMap copies;
    for (Value *value : finder.find()) {
      // A constant has permanent memory in its function already.
      const bool isWorthMemory = value->definer()->op() == Op::constant ||
                                 value->type().bytes() <= maxBytesForForward || finder.isReadInBackward(*value);
      candidates.push_back({value, isWorthMemory});
      copied.push_back(copyOf(*value, copies));
    }
  }

  /// Copies the nodes that compute the value to `start`.
  Value *copyOf(Value &value, ValueMap &copies) {
    Builder builder(start);
    llvm::SmallVector<Node *, 16> work = {value.definer()};
    while (!work.empty()) {
      Node &node = *work.back();
      const size_t before = work.size();
      for (Value *operand : node.operands())
        if (!copies.contains(operand))
          work.push_back(operand->definer());
      if (work.size() > before)
        continue;
      work.pop_back();
      if (copies.contains(node.result(0)))
        continue;
      llvm::SmallVector<Value *, 4> operands;
      for (Value *operand : node.operands())
        operands.push_back(copies.lookup(operand));
      Node *copy = builder.clone(node, operands);
      copy->section = {};
      copy->unit = -1;
      for (unsigned i = 0; i < node.resultCount(); ++i)
        copies[node.result(i)] = copy->result(i);
    }
    return copies.lookup(&value);
  }

  /// Returns false if there is nothing to make.
  bool makeStates() {
    std::vector<std::string> names;
    for (size_t i = 0; i < copied.size(); ++i)
      names.push_back(std::to_string(i));
    Node *all = Builder(start).ret(copied, names); // keeps up with the values that are merged
    mergeEqualNodes(start, isRemovable);
    llvm::MapVector<Value *, llvm::SmallVector<Candidate, 2>> tables;
    for (size_t i = 0; i < candidates.size(); ++i)
      tables[all->operand(i)].push_back(candidates[i]);
    all->erase();
    Builder builder(start);
    for (auto &[value, uses] : tables)
      if (llvm::any_of(uses, [](const Candidate &use) { return use.isWorthMemory; }))
        makeState(builder, *value, uses);
    builder.ret({}, {});
    for (const std::unique_ptr<Function> &function : module.functions)
      eraseDeadNodes(*function);
    return start.size() > 1;
  }

  void makeState(Builder &builder, Value &value, llvm::ArrayRef<Candidate> uses) {
    State state;
    state.name = freshName();
    state.role = StateRole::table;
    state.type = value.type();
    const State &added = module.addState(std::move(state));
    builder.writeState(added, &value);
    for (const Candidate &use : uses) {
      Function &function = *use.value->function();
      Builder reader(function, function.front());
      Value *read = reader.readState(added);
      read->setName(use.value->name());
      use.value->replaceAllUsesWith(read);
    }
  }

  std::string freshName() {
    std::string name;
    do
      name = "table." + std::to_string(tableCount++);
    while (module.state(name));
    return name;
  }

  Module &module;
  const int64_t minBytes;
  Function &start;
  std::vector<Candidate> candidates;
  std::vector<Value *> copied; ///< of the candidates, in `start`
  int64_t tableCount = 0;
};

llvm::Error run(Module &module, const PassContext &context) {
  TableMaker(module, context.options.minTableBytes).run();
  return llvm::Error::success();
}

} // namespace

const Pass makeTables = {"make_tables", Stage::train, Stage::train, /*optional=*/true,
                         run,           {},           {},           FunctionKind::start};

} // namespace fsdpc
