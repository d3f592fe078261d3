// Fuses sums into the norms that read them. One walk per function. If several norms read one sum, the first absorbs it.
// A gradient absorbs the sum that is the only reader of its result.
#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "ir/ops/norm.h"
#include "passes/passes.h"
#include "passes/support/section_regions.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

namespace {

// A sum with more readers than this is not fused, so their positions are not compared.
constexpr size_t maxUses = 64;

class ResidualFuser {
public:
  ResidualFuser(Function &function, const Target &target)
      : function(function), target(target), regionOf(sectionRegions(function)) {}

  void run() {
    // Collected first: the rewrite replaces nodes that the walk would visit next.
    std::vector<Node *> norms, gradients;
    for (Node *node : function) {
      if (node->op() == Op::layerNorm || node->op() == Op::rmsNorm)
        norms.push_back(node);
      else if (node->op() == Op::layerNormGrad || node->op() == Op::rmsNormGrad)
        gradients.push_back(node);
    }
    for (Node *norm : norms)
      takeResidual(*norm);
    for (Node *gradient : gradients)
      takeAddend(*gradient);
  }

private:
  bool areTogether(const Node &a, const Node &b) const { return regionOf.lookup(&a) == regionOf.lookup(&b); }

  /// True if the sum would be part of a fused loop anyway. The loop reads broadcasts and constants at their source, and
  /// computes an operand that no other node reads.
  bool belongsToLoop(const Node &sum, const Value *operand) const {
    const Node *definer = operand->definer();
    if (!definer)
      return false;
    if (definer->op() == Op::constant || definer->op() == Op::broadcast)
      return true;
    bool isStep = isElementwise(*definer) || definer->op() == Op::randomUniform;
    return isStep && operand->hasOneUse() && areTogether(*definer, sum);
  }

  /// True if all other readers come after `node`.
  static bool isReadAfter(const Value *value, const Node &node, const Node *except) {
    size_t uses = 0;
    for (const Use *use = value->uses(); use; use = use->next()) {
      if (++uses > maxUses)
        return false;
      const Node *user = use->user();
      if (user == except)
        continue;
      if (user == &node || user->isBefore(&node))
        return false;
    }
    return true;
  }

  bool maySumJoin(const Node &norm, const Node &sum) const {
    if (sum.op() != Op::add || !areTogether(sum, norm) || sum.operand(0) == sum.operand(1))
      return false;
    if (belongsToLoop(sum, sum.operand(0)) || belongsToLoop(sum, sum.operand(1)))
      return false;
    llvm::SmallVector<Value *, 4> scales(norm.operands());
    return !llvm::is_contained(llvm::ArrayRef(scales).drop_front(), sum.result()) &&
           isReadAfter(sum.result(), norm, &norm);
  }

  void takeResidual(Node &norm) {
    Node *sum = norm.operand(0)->definer();
    if (addedOperand(norm) || !sum || !maySumJoin(norm, *sum))
      return;
    llvm::SmallVector<Value *, 4> operands = norm.operands();
    operands[0] = sum->operand(0);
    operands.push_back(sum->operand(1));
    Node *fused = create(norm, norm, operands);
    if (!fused)
      return;
    replace(norm, *fused, 0);
    replaceResult(*sum, 0, *fused, norm.resultCount());
    norm.erase();
    sum->erase();
  }

  void takeAddend(Node &gradient) {
    Value *dx = gradient.result(0);
    Node *sum = dx->hasOneUse() ? dx->uses()->user() : nullptr;
    if (addedOperand(gradient) || !sum || sum->op() != Op::add || !areTogether(gradient, *sum))
      return;
    Value *addend = sum->operand(sum->operand(0) == dx ? 1 : 0);
    if (belongsToLoop(*sum, addend))
      return;
    Node *place = placeOf(gradient, *sum, *addend);
    if (!place)
      return;
    llvm::SmallVector<Value *, 6> operands(gradient.operands());
    operands.push_back(addend);
    Node *fused = create(*place, gradient, operands);
    if (!fused)
      return;
    replaceResult(*sum, 0, *fused, 0);
    replace(gradient, *fused, 1);
    sum->erase();
    gradient.erase();
  }

  /// The position of the gradient, or of the sum where the addend is not defined before the gradient. Null if other
  /// nodes need the gradient's results by then, including nodes that compute the addend.
  static Node *placeOf(Node &gradient, Node &sum, const Value &addend) {
    if (!addend.definer() || addend.definer()->isBefore(&gradient))
      return &gradient;
    for (unsigned i = 1; i < gradient.resultCount(); ++i)
      if (!isReadAfter(gradient.result(i), sum, nullptr))
        return nullptr;
    return &sum;
  }

  /// The node with one more operand, inserted before `place`. Null if the target has no such kernel.
  Node *create(Node &place, const Node &node, llvm::ArrayRef<Value *> operands) {
    Builder builder(function, &place);
    builder.inherit(node);
    Node *fused = builder.create(node.op(), operands, node.get<NormAttributes>());
    if (!target.unsupported(*fused)) {
      regionOf[fused] = regionOf.lookup(&place);
      return fused;
    }
    fused->erase();
    return nullptr;
  }

  static void replace(Node &node, Node &fused, unsigned first) {
    for (unsigned i = first; i < node.resultCount(); ++i)
      replaceResult(node, i, fused, i);
  }

  static void replaceResult(Node &old, unsigned oldIndex, Node &fused, unsigned index) {
    fused.result(index)->setName(old.result(oldIndex)->name());
    old.result(oldIndex)->replaceAllUsesWith(fused.result(index));
  }

  Function &function;
  const Target &target;
  llvm::DenseMap<const Node *, size_t> regionOf;
};

llvm::Error run(Module &module, const PassContext &context) {
  for (const std::unique_ptr<Function> &function : module.functions)
    ResidualFuser(*function, context.target).run();
  return llvm::Error::success();
}

} // namespace

const Pass fuseResiduals = {"fuse_residuals", Stage::sharded, Stage::sharded, true, run};

} // namespace fsdpc
