// The derivative of a linear_cross_entropy computes its terms too. Where the cotangent of the terms does not depend on
// them, the terms come from there, and the logits are computed once.
#include "ir/ops/attributes.h"
#include "passes/passes.h"
#include "llvm/ADT/DenseSet.h"

namespace fsdpc {

namespace {

/// The nodes between `first` and `last` that depend on a result of `first`, in program order.
llvm::SmallVector<Node *, 8> dependents(const Node &first, const Node &last) {
  llvm::SmallVector<Node *, 8> found;
  llvm::DenseSet<const Node *> known = {&first};
  for (Node *node = first.next(); node != &last; node = node->next())
    if (llvm::any_of(node->operands(), [&](Value *x) { return x->definer() && known.contains(x->definer()); })) {
      known.insert(node);
      found.push_back(node);
    }
  return found;
}

/// The derivative that reads the same operands; null if there is none.
Node *derivativeOf(const Node &loss) {
  const llvm::SmallVector<Value *, 4> own = loss.operands();
  for (Use *use = own[0]->uses(); use; use = use->next()) {
    Node *user = use->user();
    if (user->op() == Op::linearCrossEntropyGrad && llvm::equal(llvm::drop_begin(user->operands()), own))
      return user;
  }
  return nullptr;
}

void merge(Node &loss) {
  Node *grad = derivativeOf(loss);
  if (!grad || loss.result(1)->hasUses())
    return;
  llvm::SmallVector<Node *, 8> readers = dependents(loss, *grad);
  llvm::DenseSet<const Node *> known(readers.begin(), readers.end());
  known.insert(&loss);
  if (llvm::any_of(grad->operands(), [&](Value *x) { return x->definer() && known.contains(x->definer()); }))
    return;
  Node *last = grad;
  for (Node *reader : readers) {
    reader->moveAfter(last);
    if (reader->section.phase == Phase::forward)
      reader->section.phase = Phase::backward;
    last = reader;
  }
  loss.result(0)->replaceAllUsesWith(grad->result(0));
  loss.erase();
}

llvm::Error run(Module &module, const PassContext &) {
  for (Node *node : *module.function(FunctionKind::microStep))
    if (node->op() == Op::linearCrossEntropy)
      merge(*node);
  return llvm::Error::success();
}

} // namespace

const Pass mergeLossGradient = {"merge_loss_gradient", Stage::train, Stage::train,
                                /*optional=*/true,     run,          FunctionKind::microStep};

} // namespace fsdpc
