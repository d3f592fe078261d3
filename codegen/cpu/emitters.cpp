#include "codegen/common/emitter.h"

namespace fsdpc {

const Emitter &emitterOf(Op op) {
  static const Emitter *const table[] = {
#define OP(enumerator, text, info) &emitters::enumerator,
#include "ir/ops.def"
  };
  return *table[static_cast<size_t>(op)];
}

std::optional<std::string> unsupportedOnCpu(const Node &node) {
  const Emitter &emitter = emitterOf(node.op());
  return emitter.unsupported ? emitter.unsupported(node) : std::nullopt;
}

std::optional<std::string> onlyF32(const Node &node) {
  auto isOther = [](const Value *value) {
    return value->type().isTensor() && isFloat(value->type().dtype()) && value->type().dtype() != DType::f32;
  };
  for (const Value *operand : node.operands())
    if (isOther(operand))
      return "the kernel computes in f32, not " + nameOf(operand->type().dtype()).str();
  return std::nullopt;
}

int64_t productOf(llvm::ArrayRef<int64_t> dims) {
  int64_t product = 1;
  for (int64_t dim : dims)
    product *= dim;
  return product;
}

AxisSplit splitAt(llvm::ArrayRef<int64_t> dims, int64_t axis) {
  return {productOf(dims.take_front(axis)), dims[axis], productOf(dims.drop_front(axis + 1))};
}

Shape rowMajor(llvm::ArrayRef<int64_t> dims) {
  Shape strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;)
    strides[i - 1] = strides[i] * dims[i];
  return strides;
}

Shape broadcastStridesOf(llvm::ArrayRef<int64_t> operand, llvm::ArrayRef<int64_t> shape) {
  Shape own = rowMajor(operand), strides(shape.size(), 0);
  size_t missing = shape.size() - operand.size();
  for (size_t i = 0; i < operand.size(); ++i)
    strides[missing + i] = operand[i] == 1 ? 0 : own[i];
  return strides;
}

} // namespace fsdpc
