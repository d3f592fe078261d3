#include "ir/ops/helpers.h"

#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

llvm::Error checkOperands(const OpInfo &info, llvm::ArrayRef<Type> operands) {
  unsigned least = info.minOperands(), most = info.maxOperands();
  if (operands.size() < least || operands.size() > most) {
    std::string wanted = llvm::utostr(least);
    if (most == ~0u)
      wanted += " or more";
    else if (most != least)
      wanted += " to " + llvm::utostr(most);
    return constraintError(info.name, "C0", "takes " + wanted + " operands, got " + llvm::Twine(operands.size()));
  }
  for (size_t i = 0; i < operands.size(); ++i)
    if (!operands[i].isTensor())
      return constraintError(info.name, "C0",
                             "operand " + llvm::Twine(i) + " must be a tensor, not " + toString(operands[i]));
  return llvm::Error::success();
}

llvm::Error addResult(const OpInfo &info, llvm::StringRef constraint, DType dtype, llvm::ArrayRef<int64_t> shape,
                      llvm::SmallVectorImpl<Type> &results) {
  for (int64_t dim : shape)
    if (dim < 0)
      return constraintError(info.name, constraint, "the result's shape " + shapeText(shape) + " has a negative dim");
  if (!checkedBytes(dtype, shape))
    return constraintError(info.name, constraint, "the result's shape " + shapeText(shape) + " has too many elements");
  results.push_back(Type(dtype, shape));
  return llvm::Error::success();
}

llvm::Error checkAxis(const OpInfo &info, llvm::StringRef constraint, int64_t axis, int64_t rank) {
  if (axis >= 0 && axis < rank)
    return llvm::Error::success();
  return constraintError(info.name, constraint, "axis " + llvm::Twine(axis) + " is outside rank " + llvm::Twine(rank));
}

llvm::Error checkAxes(const OpInfo &info, llvm::StringRef constraint, llvm::ArrayRef<int64_t> axes, int64_t rank) {
  int64_t previous = -1;
  for (int64_t axis : axes) {
    if (llvm::Error error = checkAxis(info, constraint, axis, rank))
      return error;
    if (axis <= previous)
      return constraintError(info.name, constraint, "axes " + shapeText(axes) + " do not ascend");
    previous = axis;
  }
  return llvm::Error::success();
}

llvm::Error checkSame(const OpInfo &info, llvm::StringRef constraint, llvm::ArrayRef<Type> operands, unsigned a,
                      unsigned b) {
  if (operands[a] == operands[b])
    return llvm::Error::success();
  return constraintError(info.name, constraint,
                         "operand " + llvm::Twine(b) + " is " + toString(operands[b]) + ", operand " + llvm::Twine(a) +
                             " is " + toString(operands[a]));
}

llvm::Error checkFloat(const OpInfo &info, llvm::StringRef constraint, llvm::ArrayRef<Type> operands,
                       unsigned operand) {
  if (isFloat(operands[operand].dtype()))
    return llvm::Error::success();
  return constraintError(info.name, constraint,
                         "operand " + llvm::Twine(operand) + " is not float: " + toString(operands[operand]));
}

llvm::Error checkIndex(const OpInfo &info, llvm::StringRef constraint, llvm::ArrayRef<Type> operands,
                       unsigned operand) {
  DType dtype = operands[operand].dtype();
  if (dtype == DType::i64 || dtype == DType::i32)
    return llvm::Error::success();
  return constraintError(info.name, constraint,
                         "operand " + llvm::Twine(operand) + " is not i64 or i32: " + toString(operands[operand]));
}

llvm::Expected<DType> dtypeOfSum(const OpInfo &info, DType elements, bool accumulateF32) {
  if (!accumulateF32)
    return elements;
  if (elements == DType::bf16 || elements == DType::f16)
    return DType::f32;
  return constraintError(info.name, "C0", "accumulate_f32 is for sums of 16-bit floats, not of " + nameOf(elements));
}

std::string shapeText(llvm::ArrayRef<int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? "," : "") + llvm::itostr(shape[i]);
  return text + "]";
}

Shape rowMajorStrides(llvm::ArrayRef<int64_t> shape) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[i];
  return strides;
}

bool advance(llvm::MutableArrayRef<int64_t> coordinates, llvm::ArrayRef<int64_t> shape) {
  for (size_t i = shape.size(); i-- > 0;) {
    if (++coordinates[i] < shape[i])
      return true;
    coordinates[i] = 0;
  }
  return false;
}

int64_t flatIndex(llvm::ArrayRef<int64_t> coordinates, llvm::ArrayRef<int64_t> strides) {
  int64_t flat = 0;
  for (size_t i = 0; i < coordinates.size(); ++i)
    flat += coordinates[i] * strides[i];
  return flat;
}

Shape broadcastStrides(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to) {
  Shape strides(to.size(), 0);
  Shape own = rowMajorStrides(from);
  size_t lead = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i)
    strides[lead + i] = from[i] == 1 ? 0 : own[i];
  return strides;
}

bool broadcastsTo(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to) {
  if (from.size() > to.size())
    return false;
  size_t lead = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i] != to[lead + i] && from[i] != 1)
      return false;
  return true;
}

Shape reducedShape(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> axes, bool keepDims) {
  Shape reduced;
  size_t next = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    bool isReduced = next < axes.size() && axes[next] == static_cast<int64_t>(i);
    next += isReduced;
    if (!isReduced)
      reduced.push_back(shape[i]);
    else if (keepDims)
      reduced.push_back(1);
  }
  return reduced;
}

int64_t productOf(llvm::ArrayRef<int64_t> shape, int64_t from, int64_t to) {
  int64_t product = 1;
  for (int64_t i = from; i < to; ++i)
    product *= shape[i];
  return product;
}

std::optional<double> splatOf(const Value *value) {
  while (Node *node = value->definer()) {
    if (node->op() == Op::constant) {
      const Dense &dense = node->get<ConstantAttributes>().value;
      if (dense.isSplat() || dense.storedElements() == 1)
        return dense.at(0);
      return std::nullopt;
    }
    if (node->op() != Op::broadcast && node->op() != Op::reshape && node->op() != Op::transpose)
      return std::nullopt;
    value = node->operand(0);
  }
  return std::nullopt;
}

Cost costNothing(const Node &) { return {}; }

Cost costWithFlops(const Node &node, double flops) {
  Cost cost = costOfTypes(node);
  cost.flops = flops;
  return cost;
}

Cost costOfSelection(const Node &node) {
  Cost cost = costOfTypes(node);
  cost.bytesRead += cost.bytesWritten - static_cast<double>(node.operand(0)->type().bytes());
  return cost;
}

} // namespace fsdpc
