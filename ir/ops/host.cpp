// Copies between the device and its host. They change only the location of a value.
#include "ir/ops/helpers.h"

namespace fsdpc {

namespace {

llvm::Error inferCopy(const OpInfo &info, llvm::ArrayRef<Type> operands, llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  results.push_back(Type::future(operands[0]));
  return llvm::Error::success();
}

template <const OpInfo &info>
llvm::Error infer(llvm::ArrayRef<Type> operands, const AttributesBase *, llvm::SmallVectorImpl<Type> &results) {
  return inferCopy(info, operands, results);
}

void evaluateCopy(EvaluateContext &context) { context.results[0].values = context.operands[0]->values; }

} // namespace

const OpInfo offloadStartInfo = {
    .name = "offload.start",
    .doc = "Starts a copy of x to the host's memory; a wait delivers it there.",
    .operandNames = namesX,
    .traits = startsTransfer,
    .infer = infer<offloadStartInfo>,
    .evaluate = evaluateCopy,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::none,
    .stages = fromAsync,
};

const OpInfo reloadStartInfo = {
    .name = "reload.start",
    .doc = "Starts a copy of x from host memory to the device; a wait yields the copy.",
    .operandNames = namesX,
    .traits = startsTransfer,
    .infer = infer<reloadStartInfo>,
    .evaluate = evaluateCopy,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::none,
    .stages = fromAsync,
};

} // namespace fsdpc
