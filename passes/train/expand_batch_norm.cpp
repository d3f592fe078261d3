#include "ir/ops/attributes.h"
#include "ir/ops/batch_norm.h"
#include "passes/passes.h"

namespace fsdpc {

namespace {

void expand(Function &function, Node &norm) {
  Builder builder(function, &norm);
  builder.inherit(norm);
  Value *x = norm.operand(0), *mean = norm.operand(3);
  const Type type = x->type();
  const DType computed = mean->type().dtype();
  Value *r = reciprocalDeviation(builder, norm.operand(4), norm.get<BatchNormAttributes>().epsilon);
  Value *scale = builder.mul(builder.cast(norm.operand(1), computed), r);
  Value *value = builder.cast(x, computed);
  Value *centred = builder.sub(value, alongChannels(builder, mean, type));
  Value *scaled = builder.mul(centred, alongChannels(builder, scale, type));
  Value *shifted = builder.add(scaled, alongChannels(builder, builder.cast(norm.operand(2), computed), type));
  Value *y = builder.cast(shifted, type.dtype());
  y->setName(norm.result()->name());
  norm.result()->replaceAllUsesWith(y);
  norm.erase();
}

llvm::Error run(Module &module, const PassContext &) {
  for (const std::unique_ptr<Function> &function : module.functions)
    for (Node *node : *function)
      if (node->op() == Op::batchNorm)
        expand(*function, *node);
  return llvm::Error::success();
}

} // namespace

const Pass expandBatchNorm = {"expand_batch_norm", Stage::train, Stage::train, /*optional=*/false, run};

} // namespace fsdpc
