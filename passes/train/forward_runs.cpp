#include "passes/train/forward_runs.h"

#include "ir/op.h"
#include "passes/support/section_runs.h"

namespace fsdpc {

namespace {

class RunCollector {
public:
  explicit RunCollector(Function &step) : step(step), runOf(sectionRuns(step)) {}

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
    return computes && !anyUse(node, [&](const Node &user) { return !isOwnReader(node, user); });
  }

  /// Other parts of forward, other units' derivatives and the runtime need the value itself.
  bool isOwnReader(const Node &node, const Node &user) const {
    return user.section.phase == Phase::backward ? user.section.unit == node.section.unit
                                                 : runOf.lookup(&user) == runOf.lookup(&node);
  }

  Function &step;
  const llvm::DenseMap<const Node *, size_t> runOf;
};

} // namespace

std::vector<ForwardRun> forwardRuns(Function &step) { return RunCollector(step).collect(); }

} // namespace fsdpc
