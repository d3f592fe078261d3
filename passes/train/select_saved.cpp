#include "ir/op.h"
#include "ir/ops/attention.h"
#include "passes/passes.h"
#include "passes/support/section_runs.h"

namespace fsdpc {

namespace {

/// What is expensive to compute again for what it takes to keep (Korthikanti et al., arXiv 2205.05198, section 5).
bool isExpensive(const Node &node) {
  switch (node.op()) {
  case Op::matmul:
  case Op::convolution:
  case Op::convolutionGradInput: return true;
  default: return isAttention(node);
  }
}

class SavedSelector {
public:
  explicit SavedSelector(Function &step)
      : step(step), module(*step.module()), runOf(sectionRuns(step)), turn(lastForwardRun()) {}

  void run() {
    // From the end, so that the readers of a value are decided before it.
    for (Node *node = step.back(); node; node = node->previous())
      if (mayRecompute(*node) && isWanted(*node) && isReadByBackward(*node))
        node->saving = Saving::recompute;
  }

private:
  /// Backward begins with what this run leaves.
  size_t lastForwardRun() const {
    for (const Node *node = step.back(); node; node = node->previous())
      if (node->section.phase == Phase::forward && node->section.unit >= 0)
        return runOf.lookup(node);
    return 0;
  }

  /// Constants and states are there in any case.
  bool mayRecompute(const Node &node) const {
    bool computes = infoOf(node).has(pure) && !infoOf(node).has(collective) && node.op() != Op::constant;
    return computes && node.section.phase == Phase::forward && node.section.unit >= 0 && runOf.lookup(&node) != turn &&
           !isReadElsewhere(node);
  }

  /// By other parts of forward, by other units' derivatives, or by the runtime.
  bool isReadElsewhere(const Node &node) const {
    for (unsigned i = 0; i < node.resultCount(); ++i)
      for (const Use *use = node.result(i)->uses(); use; use = use->next()) {
        const Node &user = *use->user();
        bool isOwn = user.section.phase == Phase::backward ? user.section.unit == node.section.unit
                                                           : runOf.lookup(&user) == runOf.lookup(&node);
        if (!isOwn)
          return true;
      }
    return false;
  }

  bool isWanted(const Node &node) const {
    llvm::StringRef mode = module.units[node.section.unit].activationCheckpointing;
    return mode == "full" || (mode == "selective" && !isExpensive(node));
  }

  /// By a derivative, or by what is computed again for one.
  static bool isReadByBackward(const Node &node) {
    for (unsigned i = 0; i < node.resultCount(); ++i)
      for (const Use *use = node.result(i)->uses(); use; use = use->next())
        if (use->user()->section.phase == Phase::backward || use->user()->saving == Saving::recompute)
          return true;
    return false;
  }

  Function &step;
  const Module &module;
  const llvm::DenseMap<const Node *, size_t> runOf;
  const size_t turn;
};

llvm::Error run(Module &module, const PassContext &) {
  SavedSelector(*module.function(FunctionKind::microStep)).run();
  return llvm::Error::success();
}

} // namespace

const Pass selectSaved = {"select_saved", Stage::train, Stage::train, /*optional=*/true, run};

} // namespace fsdpc
