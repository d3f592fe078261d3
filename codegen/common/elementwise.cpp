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

std::string binary(const Step &step, llvm::StringRef symbol, llvm::ArrayRef<std::string> a) {
  std::string text = a[0] + " " + symbol.str() + " " + a[1];
  // Arithmetic on small integers is done in int; it wraps to its own width.
  return step.dtype == DType::u8 || step.dtype == DType::i32
             ? "static_cast<" + cppType(step.dtype).str() + ">(" + text + ")"
             : text;
}

std::string function(llvm::StringRef name, llvm::ArrayRef<std::string> a) {
  return ("scalar::" + name + "(").str() + llvm::join(a, ", ") + ")";
}

/// Does the op give an element that one of its arguments was, or its negative? Then there is nothing to round.
bool isExact(Op op) {
  return op == Op::select || op == Op::maximum || op == Op::minimum || op == Op::neg || op == Op::abs || op == Op::relu;
}

std::string exactText(const Step &step, DType dtype, llvm::ArrayRef<std::string> a) {
  bool isFloatStep = isFloat(dtype);
  switch (step.op) {
  case Op::constant: return cppLiteral(step.dtype, step.literal);
  case Op::add: return binary(step, "+", a);
  case Op::sub: return binary(step, "-", a);
  case Op::mul: return binary(step, "*", a);
  case Op::div: return isFloatStep ? binary(step, "/", a) : function("div", a);
  case Op::neg: return step.dtype == DType::u8 ? "static_cast<std::uint8_t>(-(" + a[0] + "))" : "-(" + a[0] + ")";
  case Op::pow: return function(isFloatStep ? "pow" : "integerPow", a);
  case Op::maximum: return function("max", a);
  case Op::minimum: return function("min", a);
  case Op::equal: return a[0] + " == " + a[1];
  case Op::less: return a[0] + " < " + a[1];
  case Op::lessEqual: return a[0] + " <= " + a[1];
  case Op::logicalAnd: return a[0] + " & " + a[1];
  case Op::logicalOr: return a[0] + " | " + a[1];
  case Op::logicalXor: return a[0] + " != " + a[1];
  case Op::logicalNot: return "!" + a[0];
  case Op::isNan: return a[0] + " != " + a[0];
  case Op::select: return a[0] + " ? " + a[1] + " : " + a[2];
  case Op::cast: return "scalar::cast<" + cppValueType(step.dtype).str() + ">(" + a[0] + ")";
  // Operands are x and dy; the kernel's derivatives take dy first.
  case Op::geluGrad: return function("geluGrad", {a[1], a[0]});
  case Op::geluTanhGrad: return function("geluTanhGrad", {a[1], a[0]});
  case Op::geluTanh: return function("geluTanh", a);
  case Op::siluGrad: return function("siluGrad", {a[1], a[0]});
  default:
    return function(infoOf(step.op).name, a); // neg, abs, exp, ...: the runtime's scalar functions have our names
  }
}

} // namespace

std::string stepText(const Step &step, DType dtype, llvm::ArrayRef<std::string> arguments) {
  std::string text = exactText(step, dtype, arguments);
  bool rounds = isHalf(step.dtype) && !isExact(step.op) && !(step.op == Op::cast && dtype == step.dtype);
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
