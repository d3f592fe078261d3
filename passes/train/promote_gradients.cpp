#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "passes/support/precision.h"

namespace fsdpc {

namespace {

/// The cast that is the only reader of the value, perhaps through reshapes; null if there is none.
Node *promotedBy(Value *value) {
  while (value->hasOneUse() && value->uses()->user()->op() == Op::reshape)
    value = value->uses()->user()->result();
  Node *user = value->hasOneUse() ? value->uses()->user() : nullptr;
  bool promotes = user && user->op() == Op::cast && user->result()->type().dtype() == DType::f32;
  return promotes && isHalf(value->type().dtype()) ? user : nullptr;
}

/// True if every sum of the node is rounded and immediately cast back to f32, or not read at all.
bool allArePromoted(const Node &node, unsigned first) {
  bool any = false;
  for (unsigned i = first; i < node.resultCount(); ++i) {
    bool isRead = node.result(i)->hasUses();
    if (isRead && !promotedBy(node.result(i)))
      return false;
    any |= isRead;
  }
  return any;
}

void promote(Function &function, Node &node, unsigned first) {
  Builder builder(function, &node);
  builder.inherit(node);
  Node *promoted = builder.create(node.op(), node.operands(), infoOf(node).accumulateInF32(node));
  for (unsigned i = 0; i < node.resultCount(); ++i) {
    promoted->result(i)->setName(node.result(i)->name());
    Node *cast = i >= first && node.result(i)->hasUses() ? promotedBy(node.result(i)) : nullptr;
    if (cast) {
      builder.setInsertionPoint(cast);
      cast->result()->replaceAllUsesWith(builder.reshape(promoted->result(i), cast->result()->type().shape()));
      builder.setInsertionPoint(&node);
    } else {
      node.result(i)->replaceAllUsesWith(promoted->result(i));
    }
  }
}

/// True for the rounding of a sum that an op returns in f32 anyway: of a sum over the elements of channels, or of a
/// multiple of it, or of a sum over the positions of a loss.
bool roundsF32Sum(const Node &cast) {
  const Node *source = cast.op() == Op::cast ? cast.operand(0)->definer() : nullptr;
  if (source && source->op() == Op::linearCrossEntropyGrad)
    return cast.operand(0) != source->result(1);
  if (source && source->op() == Op::mul)
    source = source->operand(0)->definer();
  return source && source->op() == Op::batchNormGrad;
}

/// Removes casts to f32 that are immediately followed by a cast back.
void dropRoundTrips(Function &step) {
  for (Node *node : step) {
    Node *promotion =
        node->op() == Op::cast && node->section.phase == Phase::backward ? node->operand(0)->definer() : nullptr;
    bool isBack = promotion && promotion->op() == Op::cast && isHalf(node->result()->type().dtype()) &&
                  promotion->result()->type().dtype() == DType::f32 &&
                  promotion->operand(0)->type() == node->result()->type();
    if (isBack)
      node->result()->replaceAllUsesWith(promotion->operand(0));
  }
  eraseDeadNodes(step);
}

llvm::Error run(Module &module, const PassContext &) {
  Function &step = *module.function(FunctionKind::microStep);
  // Micro-steps accumulate in f32.
  if (module.microSteps == 1)
    dropRoundTrips(step);
  for (Node *node : step) {
    if (Node *promotion = roundsF32Sum(*node) ? promotedBy(node->result()) : nullptr) {
      Builder builder(step, promotion);
      builder.inherit(*promotion);
      promotion->result()->replaceAllUsesWith(builder.reshape(node->operand(0), promotion->result()->type().shape()));
    }
    int first = node->section.phase == Phase::backward ? infoOf(*node).firstSum : -1;
    if (first >= 0 && allArePromoted(*node, static_cast<unsigned>(first)))
      promote(step, *node, static_cast<unsigned>(first));
  }
  dropRoundTrips(step);
  return llvm::Error::success();
}

} // namespace

const Pass promoteGradients = {"promote_gradients", Stage::train, Stage::train, true, run, FunctionKind::microStep};

} // namespace fsdpc
