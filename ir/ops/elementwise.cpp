#include "ir/ops/elementwise.h"

namespace fsdpc {

namespace {

bool isOfKind(DType dtype, ElementKind kind) {
  switch (kind) {
  case ElementKind::any: return true;
  case ElementKind::number: return dtype != DType::boolean;
  case ElementKind::integer: return isInteger(dtype);
  case ElementKind::floating: return isFloat(dtype);
  case ElementKind::boolean: return dtype == DType::boolean;
  }
  return false;
}

llvm::StringRef nameOf(ElementKind kind) {
  switch (kind) {
  case ElementKind::any: return "anything";
  case ElementKind::number: return "a number";
  case ElementKind::integer: return "integer";
  case ElementKind::floating: return "float";
  case ElementKind::boolean: return "bool";
  }
  return "";
}

} // namespace

llvm::Error inferElementwise(const OpInfo &info, ElementKind kind, std::optional<DType> resultDType,
                             llvm::ArrayRef<Type> operands, llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  for (unsigned i = 1; i < operands.size(); ++i)
    if (llvm::Error error = checkSame(info, "C1", operands, 0, i))
      return error;
  DType dtype = operands[0].dtype();
  if (!isOfKind(dtype, kind))
    return constraintError(info.name, "C2", "elements must be " + nameOf(kind) + ": " + toString(operands[0]));
  return addResult(info, "C1", resultDType.value_or(dtype), operands[0].shape(), results);
}

void evaluateElementwise(EvaluateContext &context, ScalarFunction scalar) {
  HostTensor &result = context.results[0];
  llvm::SmallVector<double, 4> arguments(context.operands.size());
  for (size_t i = 0; i < result.values.size(); ++i) {
    for (size_t k = 0; k < arguments.size(); ++k)
      arguments[k] = context.operands[k]->values[i];
    result.values[i] = scalar(arguments.data(), result.type.dtype());
  }
}

} // namespace fsdpc
