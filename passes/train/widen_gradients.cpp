#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "passes/support/precision.h"

namespace fsdpc {

namespace {

/// The cast that alone reads the value, perhaps reshaped; null if there is none.
Node *widenedBy(Value *value) {
  while (value->hasOneUse() && value->uses()->user()->op() == Op::reshape)
    value = value->uses()->user()->result();
  Node *user = value->hasOneUse() ? value->uses()->user() : nullptr;
  bool widens = user && user->op() == Op::cast && user->result()->type().dtype() == DType::f32;
  return widens && isHalf(value->type().dtype()) ? user : nullptr;
}

/// Every sum of the node is rounded and at once f32 again, or not read at all.
bool allAreWidened(const Node &node, unsigned first) {
  bool any = false;
  for (unsigned i = first; i < node.resultCount(); ++i) {
    bool isRead = node.result(i)->hasUses();
    if (isRead && !widenedBy(node.result(i)))
      return false;
    any |= isRead;
  }
  return any;
}

void widen(Function &function, Node &node, unsigned first) {
  Builder builder(function, &node);
  builder.inherit(node);
  Node *wide = builder.create(node.op(), node.operands(), infoOf(node).accumulateInF32(node));
  for (unsigned i = 0; i < node.resultCount(); ++i) {
    wide->result(i)->setName(node.result(i)->name());
    Node *cast = i >= first && node.result(i)->hasUses() ? widenedBy(node.result(i)) : nullptr;
    if (cast) {
      builder.setInsertionPoint(cast);
      cast->result()->replaceAllUsesWith(builder.reshape(wide->result(i), cast->result()->type().shape()));
      builder.setInsertionPoint(&node);
    } else {
      node.result(i)->replaceAllUsesWith(wide->result(i));
    }
  }
}

/// A sum over the elements of channels, or a multiple of it, that is rounded.
bool roundsChannelSum(const Node &cast) {
  const Node *source = cast.op() == Op::cast ? cast.operand(0)->definer() : nullptr;
  if (source && source->op() == Op::mul)
    source = source->operand(0)->definer();
  return source && source->op() == Op::batchNormGrad;
}

/// What was made f32 and at once rounded again is as it was.
void dropRoundTrips(Function &step) {
  for (Node *node : step) {
    Node *widening =
        node->op() == Op::cast && node->section.phase == Phase::backward ? node->operand(0)->definer() : nullptr;
    bool isBack = widening && widening->op() == Op::cast && isHalf(node->result()->type().dtype()) &&
                  widening->result()->type().dtype() == DType::f32 &&
                  widening->operand(0)->type() == node->result()->type();
    if (isBack)
      node->result()->replaceAllUsesWith(widening->operand(0));
  }
  eraseDeadNodes(step);
}

llvm::Error run(Module &module, const PassContext &) {
  Function &step = *module.function(FunctionKind::microStep);
  // What micro-steps add up they add up in f32.
  if (module.microSteps == 1)
    dropRoundTrips(step);
  for (Node *node : step) {
    if (Node *widening = roundsChannelSum(*node) ? widenedBy(node->result()) : nullptr) {
      Builder builder(step, widening);
      builder.inherit(*widening);
      widening->result()->replaceAllUsesWith(builder.reshape(node->operand(0), widening->result()->type().shape()));
    }
    int first = node->section.phase == Phase::backward ? infoOf(*node).firstSum : -1;
    if (first >= 0 && allAreWidened(*node, static_cast<unsigned>(first)))
      widen(step, *node, static_cast<unsigned>(first));
  }
  dropRoundTrips(step);
  return llvm::Error::success();
}

} // namespace

const Pass widenGradients = {"widen_gradients", Stage::train, Stage::train, true, run};

} // namespace fsdpc
