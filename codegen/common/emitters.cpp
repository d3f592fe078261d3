#include "codegen/common/cpp_text.h"
#include "codegen/common/emitter.h"

namespace fsdpc {

const Emitter &emitterOf(Op op) {
  static const Emitter *const table[] = {
#define ELEMENTWISE_OP(enumerator, text, info) &emitters::elementwise,
#define OP(enumerator, text, info) &emitters::enumerator,
#include "ir/ops.def"
  };
  return *table[static_cast<size_t>(op)];
}

namespace {

/// Calls `body` with the type of each operand, each result and each step of a fused loop.
template <class Body>
void forEachDType(const Node &node, const Body &body) {
  for (const Value *operand : node.operands())
    body(operand->type());
  for (unsigned i = 0; i < node.resultCount(); ++i)
    body(node.result(i)->type());
  if (node.op() == Op::fused)
    for (const Expression::Step &step : node.get<FusedAttributes>().body.steps)
      body(Type(step.dtype, {}));
}

std::optional<std::string> unsupportedElements(const Node &node, Elements elements) {
  std::optional<std::string> reason;
  forEachDType(node, [&](const Type &type) {
    if (elements == Elements::any || !type.isTensor() || !isFloat(type.dtype()) || type.dtype() == DType::f32)
      return;
    if (elements == Elements::single && !isHalf(type.dtype()))
      reason = "the kernel computes in f32, not " + nameOf(type.dtype()).str();
  });
  return reason;
}

} // namespace

int64_t toMultiple(int64_t bytes) { return (bytes + copyAlignmentBytes - 1) / copyAlignmentBytes * copyAlignmentBytes; }

std::optional<std::string> unsupportedBy(const Dialect &dialect, const Node &node) {
  const Emitter &emitter = emitterOf(node.op());
  if (emitter.unsupported)
    if (std::optional<std::string> reason = emitter.unsupported(node))
      return reason;
  if (std::optional<std::string> reason = unsupportedElements(node, emitter.elements))
    return reason;
  return dialect.unsupported(node);
}

int64_t ownScratchBytes(const Dialect &dialect, const Node &node) {
  return node.schedule.workspaceBytes - promotedBytes(dialect, node);
}

bool isGeneratedLoop(const Node &node) {
  return isElementwise(node) || node.op() == Op::fused || node.op() == Op::randomUniform;
}

int64_t promotedBytes(const Dialect &dialect, const Node &node) {
  if (dialect.takesHalves(node))
    return 0;
  int64_t bytes = 0;
  forEachDType(node, [&](const Type &type) {
    if (type.isTensor() && isHalf(type.dtype()))
      bytes += toMultiple(type.withDType(DType::f32).bytes());
  });
  return bytes;
}

int64_t scratchWithCopies(const Dialect &dialect, const Node &node, int64_t bytes) {
  int64_t copies = promotedBytes(dialect, node);
  return copies == 0 ? bytes : toMultiple(bytes) + copies;
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
