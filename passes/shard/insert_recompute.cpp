#include "ir/builder.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "passes/support/section_regions.h"
#include "llvm/ADT/MapVector.h"

namespace fsdpc {

namespace {

class RecomputeInserter {
public:
  explicit RecomputeInserter(Function &step) : step(step), regionOf(sectionRegions(step)) {}

  void run() {
    std::vector<Node *> firstOfRegion;
    llvm::MapVector<size_t, std::vector<Node *>> marked; ///< by region, in program order
    for (Node *node : step) {
      if (regionOf.lookup(node) == firstOfRegion.size())
        firstOfRegion.push_back(node);
      if (node->schedule.saving == Saving::recompute)
        marked[regionOf.lookup(node)].push_back(node);
    }
    for (const auto &[ofRegion, nodes] : marked)
      if (std::optional<size_t> reader = firstReader(nodes))
        insert(nodes, *firstOfRegion[*reader]);
    for (const auto &[ofRegion, nodes] : marked)
      for (Node *node : nodes)
        node->schedule.saving = Saving::keep;
  }

private:
  static bool isBackward(const Use &use) { return use.user()->section.phase == Phase::backward; }

  /// The first region of backward that reads a result of one of the nodes.
  std::optional<size_t> firstReader(llvm::ArrayRef<Node *> nodes) const {
    std::optional<size_t> first;
    for (const Node *node : nodes)
      for (unsigned i = 0; i < node->resultCount(); ++i)
        for (const Use *use = node->result(i)->uses(); use; use = use->next())
          if (size_t run = regionOf.lookup(use->user()); isBackward(*use) && (!first || run < *first))
            first = run;
    return first;
  }

  void insert(llvm::ArrayRef<Node *> nodes, Node &position) {
    Builder builder(step, &position);
    ValueMap again;
    for (Node *node : nodes) {
      llvm::SmallVector<Value *, 4> operands;
      for (Value *operand : node->operands()) {
        Value *copy = again.lookup(operand);
        operands.push_back(copy ? copy : operand);
      }
      Node *copy = builder.clone(*node, operands);
      copy->section.phase = Phase::recompute;
      for (unsigned i = 0; i < node->resultCount(); ++i) {
        again[node->result(i)] = copy->result(i);
        readCopy(*node->result(i), *copy->result(i));
      }
    }
  }

  static void readCopy(Value &value, Value &copy) {
    llvm::SmallVector<Use *, 4> uses;
    for (Use *use = value.uses(); use; use = use->next())
      if (isBackward(*use))
        uses.push_back(use);
    for (Use *use : uses)
      use->user()->setOperand(use->index(), &copy);
  }

  Function &step;
  const llvm::DenseMap<const Node *, size_t> regionOf;
};

llvm::Error run(Module &module, const PassContext &) {
  RecomputeInserter(*module.function(FunctionKind::microStep)).run();
  return llvm::Error::success();
}

} // namespace

const Pass insertRecompute = {"insert_recompute",     Stage::sharded, Stage::sharded, /*optional=*/true, run,
                              FunctionKind::microStep};

} // namespace fsdpc
