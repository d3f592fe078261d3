#include "passes/train/forward_runs.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "passes/support/section_runs.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include <set>
#include <tuple>

namespace fsdpc {

namespace {

class RunCollector {
public:
  explicit RunCollector(Function &step) : step(step), module(*step.module()), runOf(sectionRuns(step)) {
    for (const Node *node : step)
      for (const Value *operand : node->operands())
        if (const Parameter *parameter = node->section.phase == Phase::backward ? parameterOf(operand) : nullptr)
          gatheredAgain.insert(kindOf(*parameter));
    for (const Node *node : step)
      noteForwardOnly(*node);
  }

  std::vector<ForwardRun> collect() const {
    const size_t turn = lastForwardRun();
    std::vector<ForwardRun> runs;
    const Node *previous = nullptr;
    for (Node *node : step) {
      if (!isOfUnit(*node) || runOf.lookup(node) == turn)
        continue;
      if (!previous || runOf.lookup(previous) != runOf.lookup(node))
        runs.emplace_back();
      previous = node;
      runs.back().nodes.push_back(node);
      runs.back().mayRecompute.push_back(mayRecompute(*node));
      runs.back().readByBackward.push_back(
          anyUse(*node, [](const Node &user) { return user.section.phase == Phase::backward; }));
    }
    return runs;
  }

private:
  static bool isOfUnit(const Node &node) { return node.section.phase == Phase::forward && node.section.unit >= 0; }

  size_t lastForwardRun() const {
    for (const Node *node = step.back(); node; node = node->previous())
      if (isOfUnit(*node))
        return runOf.lookup(node);
    return 0;
  }

  template <class Predicate>
  static bool anyUse(const Node &node, Predicate holds) {
    for (unsigned i = 0; i < node.resultCount(); ++i)
      for (const Use *use = node.result(i)->uses(); use; use = use->next())
        if (holds(*use->user()))
          return true;
    return false;
  }

  bool mayRecompute(const Node &node) const {
    bool computes = infoOf(node).has(pure) && !infoOf(node).has(collective) && node.op() != Op::constant;
    bool needsGather = llvm::any_of(node.operands(), [&](Value *operand) { return forwardOnly.contains(operand); });
    return computes && !needsGather && !anyUse(node, [&](const Node &user) { return !isOwnReader(node, user); });
  }

  /// Other parts of forward, other units' derivatives and the runtime need the value itself.
  bool isOwnReader(const Node &node, const Node &user) const {
    return user.section.phase == Phase::backward ? user.section.unit == node.section.unit
                                                 : runOf.lookup(&user) == runOf.lookup(&node);
  }

  /// Parameters that are gathered together, whatever the strategy.
  using Kind = std::tuple<std::string, bool, bool>;
  static Kind kindOf(const Parameter &parameter) { return {parameter.unit, parameter.trainable, parameter.ignored}; }

  /// The parameter that a value is, rounded or not; null for others.
  const Parameter *parameterOf(const Value *value) const {
    while (value->definer() && value->definer()->op() == Op::cast)
      value = value->definer()->operand(0);
    const Node *read = value->definer();
    return read && read->op() == Op::read ? module.parameter(read->get<StateAttributes>().state.name) : nullptr;
  }

  /// To compute again from a parameter that no derivative reads, nor one that comes with it, would gather it again.
  void noteForwardOnly(const Node &node) {
    if (node.resultCount() != 1)
      return;
    const Parameter *parameter = parameterOf(node.result());
    bool isRearranged = node.op() == Op::broadcast || node.op() == Op::reshape || node.op() == Op::transpose;
    if ((parameter && !gatheredAgain.contains(kindOf(*parameter))) ||
        (isRearranged && forwardOnly.contains(node.operand(0))))
      forwardOnly.insert(node.result());
  }

  Function &step;
  const Module &module;
  const llvm::DenseMap<const Node *, size_t> runOf;
  std::set<Kind> gatheredAgain;
  llvm::DenseSet<const Value *> forwardOnly;
};

} // namespace

std::vector<ForwardRun> forwardRuns(Function &step) { return RunCollector(step).collect(); }

} // namespace fsdpc
