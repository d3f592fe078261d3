#include "ir/ops/attributes.h"
#include "passes/graph/match.h"
#include "passes/graph/rewrite.h"
#include "passes/passes.h"

namespace fsdpc {

namespace {

/// -1 for a value without axes.
int64_t columnsOf(const Value *value) { return value->type().rank() ? value->type().dim(-1) : -1; }

/// The matmul that computes `value`, perhaps through reshapes that keep the last dim. Null if it has another use or
/// does not support a bias.
Node *biaslessMatmul(Value *value) {
  const int64_t columns = columnsOf(value);
  while (value->hasOneUse() && definedBy(value, Op::reshape) && columnsOf(value) == columns)
    value = value->definer()->operand(0);
  Node *product = definedBy(value, Op::matmul);
  const bool fits = product && value->hasOneUse() && product->operandCount() == 2 &&
                    !product->get<MatmulAttributes>().accumulateF32 && isFloat(value->type().dtype()) &&
                    columnsOf(value) == columns;
  const auto inner = [&] {
    return product->operand(0)->type().dim(product->get<MatmulAttributes>().transposeA ? -2 : -1);
  };
  return fits && inner() > 0 ? product : nullptr;
}

/// The vector that `value` repeats along all dims but the last; null if there is none. A batch of one row repeats it
/// once.
Value *vectorBelow(Value *value) {
  const Value *repeated = value;
  if (const Node *broadcast = definedBy(value, Op::broadcast))
    value = broadcast->operand(0);
  const int64_t columns = columnsOf(repeated);
  if (columnsOf(value) != columns || value->type().elements() != columns)
    return nullptr;
  Value *source = belowReshapes(value);
  return source->type().rank() == 1 ? source : value == repeated ? nullptr : value;
}

Replacement withBias(Node &add, Builder &builder) {
  if (add.op() != Op::add)
    return {};
  for (unsigned i : {0u, 1u}) {
    Node *product = biaslessMatmul(add.operand(i));
    Value *vector = product ? vectorBelow(add.operand(1 - i)) : nullptr;
    if (!vector || product->section != add.section)
      continue;
    Value *bias = builder.reshape(vector, {vector->type().elements()});
    Node *fused =
        builder.create(Op::matmul, {product->operand(0), product->operand(1), bias}, product->get<MatmulAttributes>());
    return {builder.reshape(fused->result(), add.result()->type().shape())};
  }
  return {};
}

llvm::Error run(Module &module, const PassContext &) {
  rewriteNodes(*module.function(FunctionKind::forward), withBias);
  return llvm::Error::success();
}

} // namespace

const Pass fuseBiases = {"fuse_biases", Stage::graph, Stage::graph, false, run, FunctionKind::forward};

} // namespace fsdpc
