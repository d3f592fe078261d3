#include "passes/train/forward_regions.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "passes/support/section_regions.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include <set>
#include <tuple>

namespace fsdpc {

namespace {

class RegionCollector {
public:
  explicit RegionCollector(Function &step) : step(step), module(*step.module()), regionOf(sectionRegions(step)) {
    for (const Node *node : step)
      for (const Value *operand : node->operands())
        if (const Parameter *parameter = node->section.phase == Phase::backward ? parameterOf(operand) : nullptr)
          gatheredAgain.insert(kindOf(*parameter));
    for (const Node *node : step)
      noteForwardOnly(*node);
  }

  std::vector<ForwardRegion> collect() const {
    const size_t turn = lastForwardRegion();
    std::vector<ForwardRegion> runs;
    const Node *previous = nullptr;
    for (Node *node : step) {
      if (!isOfUnit(*node) || regionOf.lookup(node) == turn)
        continue;
      if (!previous || regionOf.lookup(previous) != regionOf.lookup(node))
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

  size_t lastForwardRegion() const {
    for (const Node *node = step.back(); node; node = node->previous())
      if (isOfUnit(*node))
        return regionOf.lookup(node);
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
                                                 : regionOf.lookup(&user) == regionOf.lookup(&node);
  }

  /// Key of parameters that are gathered together, whatever the strategy.
  using Kind = std::tuple<std::string, bool, bool>;
  static Kind kindOf(const Parameter &parameter) { return {parameter.unit, parameter.trainable, parameter.ignored}; }

  /// The parameter that a value holds, rounded or not; null for other values.
  const Parameter *parameterOf(const Value *value) const {
    while (value->definer() && value->definer()->op() == Op::cast)
      value = value->definer()->operand(0);
    const Node *read = value->definer();
    return read && read->op() == Op::read ? module.parameter(read->get<StateAttributes>().state.name) : nullptr;
  }

  /// A recomputation that reads a parameter would gather it again, if neither that parameter nor one gathered with it
  /// is read by a derivative.
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
  const llvm::DenseMap<const Node *, size_t> regionOf;
  std::set<Kind> gatheredAgain;
  llvm::DenseSet<const Value *> forwardOnly;
};

} // namespace

std::vector<ForwardRegion> forwardRegions(Function &step) { return RegionCollector(step).collect(); }

} // namespace fsdpc
