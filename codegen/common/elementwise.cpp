#include "codegen/common/elementwise.h"

#include "codegen/common/cpp_text.h"
#include "codegen/common/emitter.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

using Step = Expression::Step;

Nest nestOf(const Node &node, llvm::ArrayRef<int64_t> shape) {
  Nest nest;
  nest.strides.resize(node.operandCount());
  std::vector<Shape> full;
  for (const Value *operand : node.operands())
    full.push_back(broadcastStridesOf(operand->type().shape(), shape));
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1)
      continue;
    bool merges = !nest.dims.empty();
    for (size_t k = 0; merges && k < full.size(); ++k)
      merges = nest.strides[k].back() == full[k][axis] * shape[axis];
    if (merges)
      nest.dims.back() *= shape[axis];
    else
      nest.dims.push_back(shape[axis]);
    for (size_t k = 0; k < full.size(); ++k) {
      if (merges)
        nest.strides[k].back() = full[k][axis];
      else
        nest.strides[k].push_back(full[k][axis]);
    }
  }
  return nest;
}

namespace {

/// Replaces {0}, {1}, ... by the arguments and {T} by the type.
std::string filledIn(llvm::StringRef text, llvm::ArrayRef<std::string> arguments, llvm::StringRef type) {
  std::string result;
  while (!text.empty()) {
    auto [before, rest] = text.split('{');
    result += before;
    if (rest.empty())
      break;
    auto [place, after] = rest.split('}');
    unsigned index;
    result += place.getAsInteger(10, index) ? type : llvm::StringRef(arguments[index]);
    text = after;
  }
  return result;
}

std::string exactText(const Step &step, DType dtype, llvm::ArrayRef<std::string> arguments) {
  if (step.op == Op::constant)
    return cppLiteral(step.dtype, step.literal);
  const ElementBody &body = infoOf(step.op).element;
  const bool isInteger = !isFloat(dtype) && !body.integerText.empty();
  std::string text = filledIn(isInteger ? body.integerText : body.text, arguments, cppValueType(step.dtype));
  const bool wraps = body.wraps && (step.dtype == DType::u8 || step.dtype == DType::i32);
  return wraps ? "static_cast<" + cppType(step.dtype).str() + ">(" + text + ")" : text;
}

} // namespace

std::string stepText(const Step &step, DType dtype, llvm::ArrayRef<std::string> arguments) {
  std::string text = exactText(step, dtype, arguments);
  bool rounds = isHalf(step.dtype) && !infoOf(step.op).element.isExact && !(step.op == Op::cast && dtype == step.dtype);
  return rounds ? "roundedTo" + cppType(step.dtype).str() + "(" + text + ")" : text;
}

std::string loadText(const Type &type, llvm::StringRef element) {
  return isHalf(type.dtype()) ? ("static_cast<float>(" + element + ")").str() : element.str();
}

std::string storeText(const Type &type, llvm::StringRef value) {
  return isHalf(type.dtype()) ? (cppType(type.dtype()) + "(" + value + ")").str() : value.str();
}

std::string randomShapeText(const Step &step, llvm::ArrayRef<int64_t> shape) {
  RandomUniformAttributes random = randomUniformOf(step, shape);
  int64_t axis = random.batchAxis, samples = axis < 0 ? 1 : shape[axis];
  CppFields fields;
  if (axis < 0)
    fields.number("inner", productOf(shape), 1);
  else
    fields.number("outer", productOf(shape.take_front(axis)), 1)
        .number("samples", samples, 1)
        .number("inner", productOf(shape.drop_front(axis + 1)), 1);
  fields.number("rankSamples", random.rankSamples ? random.rankSamples : samples, samples)
      .number("firstSample", random.firstSample, 0);
  return fields.str();
}

} // namespace fsdpc
