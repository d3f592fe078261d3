// Greedy fusion along program order. A node joins the groups of its operands if every value that they already give to
// other nodes is read after it. A group is emitted at the position of its last member.
#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "passes/support/section_regions.h"
#include "llvm/ADT/DenseSet.h"

namespace fsdpc {

namespace {

// A loop body beyond this size spills registers and is hard to read.
constexpr size_t maxSteps = 48;

// A value with more uses than this is not absorbed into a loop, so their positions are not compared.
constexpr size_t maxUses = 64;

struct Group {
  std::vector<Node *> members; ///< in program order
  size_t run = 0;              ///< the region of sections that contains it
};

bool isSplat(const Value *value) {
  const Node *definer = value->definer();
  return definer && definer->op() == Op::constant && definer->get<ConstantAttributes>().value.isSplat();
}

class Fuser {
public:
  explicit Fuser(Function &function) : function(function) {}

  void run() {
    formGroups();
    for (Node *last : order)
      emit(*last);
    eraseDeadNodes(function);
  }

private:
  /// Random numbers depend only on their coordinates, so loops may generate them where they are used, more than once.
  static bool fusible(const Node &node) {
    return node.op() == Op::randomUniform || (infoOf(node).has(elementwise) && node.op() != Op::fused);
  }

  void formGroups() {
    const llvm::DenseMap<const Node *, size_t> runs = sectionRegions(function);
    for (Node *node : function)
      if (fusible(*node))
        join(*node, runs.lookup(node));
    for (Node *node : function)
      if (Group *group = groupOf(node); group && group->members.back() == node)
        order.push_back(node);
  }

  Group *groupOf(Node *node) {
    auto found = groupIndex.find(node);
    return found == groupIndex.end() ? nullptr : groups[found->second].get();
  }

  /// Joins the groups of its producers where possible. Broadcasts are not joined: their source is read.
  void join(Node &node, size_t run) {
    auto own = std::make_unique<Group>();
    own->run = run;
    size_t ownIndex = groups.size();
    llvm::SmallVector<size_t, 4> merged;
    size_t total = 1;
    for (Value *operand : node.operands()) {
      Node *producer = operand->definer();
      auto found = producer ? groupIndex.find(producer) : groupIndex.end();
      if (found == groupIndex.end() || llvm::is_contained(merged, found->second))
        continue;
      Group &group = *groups[found->second];
      if (group.run != run || operand->type().shape() != node.result()->type().shape() ||
          total + group.members.size() > maxSteps || readBefore(group, node))
        continue;
      merged.push_back(found->second);
      total += group.members.size();
    }
    for (size_t index : merged) {
      own->members.insert(own->members.end(), groups[index]->members.begin(), groups[index]->members.end());
      groups[index] = nullptr;
    }
    if (merged.size() > 1)
      llvm::sort(own->members, [](Node *a, Node *b) { return a->isBefore(b); });
    own->members.push_back(&node);
    for (Node *member : own->members)
      groupIndex[member] = ownIndex;
    groups.push_back(std::move(own));
  }

  /// True if a node outside the group reads one of its values before `node`. The group then cannot move down to the
  /// node.
  bool readBefore(const Group &group, Node &node) {
    size_t index = groupIndex.lookup(group.members.front());
    for (Node *member : group.members) {
      size_t uses = 0;
      for (Use *use = member->result()->uses(); use; use = use->next()) {
        if (++uses > maxUses)
          return true;
        auto found = groupIndex.find(use->user());
        bool inside = found != groupIndex.end() && found->second == index;
        if (!inside && use->user() != &node && use->user()->isBefore(&node))
          return true;
      }
    }
    return false;
  }

  void emit(Node &last) {
    Group &group = *groupOf(&last);
    Expression body;
    llvm::SmallVector<Value *, 8> operands;
    llvm::DenseMap<Value *, int32_t> operandIndex, stepIndex;
    llvm::DenseSet<Node *> inside(group.members.begin(), group.members.end());
    const Shape shape(last.result()->type().shape());
    // Operands come first in the numbering of arguments, so steps are numbered from zero and shifted at the end.
    auto argument = [&](Value *value) -> int32_t {
      if (auto step = stepIndex.find(value); step != stepIndex.end())
        return step->second;
      if (isSplat(value))
        return addLiteral(body, stepIndex, value);
      Value *source = throughBroadcast(value);
      auto [entry, isNew] = operandIndex.try_emplace(source, -1 - static_cast<int32_t>(operands.size()));
      if (isNew)
        operands.push_back(source);
      return entry->second;
    };
    for (Node *member : group.members)
      addStep(body, *member, argument, stepIndex);
    llvm::SmallVector<Value *, 4> results;
    for (Node *member : group.members)
      if (usedOutside(*member, inside)) {
        results.push_back(member->result());
        body.yields.push_back(stepIndex.lookup(member->result()));
      }
    if (results.empty())
      return;
    shiftArguments(body, static_cast<int32_t>(operands.size()));
    replace(group, last, operands, results, FusedAttributes{shape, std::move(body)});
  }

  static int32_t addLiteral(Expression &body, llvm::DenseMap<Value *, int32_t> &stepIndex, Value *value) {
    Expression::Step step{
        Op::constant, value->type().dtype(), {}, {}, value->definer()->get<ConstantAttributes>().value.at(0)};
    body.steps.push_back(std::move(step));
    return stepIndex[value] = static_cast<int32_t>(body.steps.size()) - 1;
  }

  static Value *throughBroadcast(Value *value) {
    while (value->definer() && value->definer()->op() == Op::broadcast)
      value = value->definer()->operand(0);
    return value;
  }

  static void addStep(Expression &body, Node &member, llvm::function_ref<int32_t(Value *)> argument,
                      llvm::DenseMap<Value *, int32_t> &stepIndex) {
    Expression::Step step{member.op(), member.result()->type().dtype(), {}, {}, 0};
    for (Value *operand : member.operands())
      step.arguments.push_back(argument(operand));
    if (member.op() == Op::randomUniform)
      step.immediates = immediatesOf(member.get<RandomUniformAttributes>());
    body.steps.push_back(std::move(step));
    stepIndex[member.result()] = static_cast<int32_t>(body.steps.size()) - 1;
  }

  /// While building, operand k is -1 - k and step k is k; in the attribute operands come first.
  static void shiftArguments(Expression &body, int32_t operandCount) {
    auto shift = [&](int32_t &argument) { argument = argument < 0 ? -1 - argument : argument + operandCount; };
    body.operandCount = operandCount;
    for (Expression::Step &step : body.steps)
      for (int32_t &argument : step.arguments)
        shift(argument);
    for (int32_t &yield : body.yields)
      shift(yield);
  }

  static bool usedOutside(Node &member, const llvm::DenseSet<Node *> &inside) {
    for (Use *use = member.result()->uses(); use; use = use->next())
      if (!inside.contains(use->user()))
        return true;
    return false;
  }

  void replace(Group &group, Node &last, llvm::ArrayRef<Value *> operands, llvm::ArrayRef<Value *> results,
               FusedAttributes attributes) {
    Builder builder(function, &last);
    builder.inherit(last);
    Node *fused = builder.create(Op::fused, operands, std::move(attributes));
    for (size_t i = 0; i < results.size(); ++i) {
      fused->result(static_cast<unsigned>(i))->setName(results[i]->name());
      results[i]->replaceAllUsesWith(fused->result(static_cast<unsigned>(i)));
    }
    for (Node *member : group.members)
      member->dropOperands();
    for (Node *member : group.members)
      member->erase();
  }

  Function &function;
  std::vector<std::unique_ptr<Group>> groups;
  llvm::DenseMap<Node *, size_t> groupIndex;
  std::vector<Node *> order;
};

llvm::Error run(Module &module, const PassContext &) {
  for (const std::unique_ptr<Function> &function : module.functions)
    Fuser(*function).run();
  return llvm::Error::success();
}

} // namespace

const Pass fuseElementwise = {"fuse_elementwise", Stage::sharded, Stage::sharded, true, run};

} // namespace fsdpc
