// Elementwise ops, alone and as steps of a chain: each step in its own type, from arguments that may have errors.
#include "ir/op.h"
#include "ir/ops/helpers.h"
#include "tests/bf16/bounds.h"

namespace fsdpc::rounding {

namespace {

/// The terms of the sum that defines these functions (ir/ops/elementwise_unary.cpp), which cancel if x is far below
/// zero: x/2 + x/2 erf(...), and so on. For others the value itself.
double sumOfTerms(Op op, const double *arguments, double value) {
  switch (op) {
  case Op::gelu:
  case Op::geluTanh: return std::fabs(arguments[0]);
  case Op::geluGrad: return std::fabs(arguments[1]) * (1 + 0.4 * std::fabs(arguments[0]));
  // If the derivative of tanh, 1 - t^2, is small, it multiplies x (1 + 3 * 0.044715 x^2).
  case Op::geluTanhGrad: {
    const double x = std::fabs(arguments[0]);
    return std::fabs(arguments[1]) * (1 + 0.4 * x * (1 + 0.134145 * x * x));
  }
  case Op::siluGrad: return std::fabs(arguments[1]) * (1 + std::fabs(arguments[0]));
  case Op::sin:
  case Op::cos: return 1;
  case Op::log: return std::max(std::fabs(value), std::fabs(arguments[0] - 1));
  case Op::pow: return std::fabs(value) * (1 + std::fabs(arguments[1] * std::log(std::fabs(arguments[0]))));
  case Op::exp: return std::fabs(value) * (1 + std::fabs(arguments[0]));
  default: return std::fabs(value);
  }
}

double roundingsOf(Op op) {
  switch (op) {
  case Op::neg:
  case Op::abs:
  case Op::sign:
  case Op::relu:
  case Op::floor:
  case Op::ceil:
  case Op::round:
  case Op::maximum:
  case Op::minimum:
  case Op::select:
  case Op::equal:
  case Op::less:
  case Op::lessEqual:
  case Op::logicalAnd:
  case Op::logicalOr:
  case Op::logicalXor:
  case Op::logicalNot:
  case Op::bitAnd:
  case Op::isNan: return 0;
  case Op::add:
  case Op::sub:
  case Op::mul:
  case Op::div:
  case Op::sqrt:
  case Op::mod:
  case Op::cast: return 1;
  default: return functionRoundings;
  }
}

/// The largest distance from the value over the corners of the arguments' error intervals.
double inherited(const OpInfo &info, llvm::ArrayRef<Tracked> arguments, DType dtype, double value) {
  double largest = 0;
  for (unsigned corner = 0; corner < 1u << arguments.size(); ++corner) {
    llvm::SmallVector<double, 3> at;
    for (unsigned i = 0; i < arguments.size(); ++i)
      at.push_back(arguments[i].value + (corner >> i & 1 ? 1 : -1) * arguments[i].error);
    const double distance = std::fabs(info.scalar(at.data(), dtype) - value);
    largest = std::max(largest, std::isnan(distance) ? 0 : distance);
  }
  return largest;
}

/// One operation before it is stored in its type. Integers are exact, and so are results that are not rounded to f32.
Tracked applied(Op op, DType dtype, llvm::ArrayRef<Tracked> arguments) {
  const OpInfo &info = infoOf(op);
  llvm::SmallVector<double, 3> exact;
  for (const Tracked &argument : arguments)
    exact.push_back(argument.value);
  const double value = info.scalar(exact.data(), dtype);
  const bool isExact = llvm::all_of(arguments, [](const Tracked &argument) { return argument.error == 0; });
  const double error = isExact ? 0 : inherited(info, arguments, dtype, value);
  if (!isFloat(dtype) || roundingsOf(op) == 0)
    return {value, error};
  if (roundingsOf(op) == 1)
    return Tracked::rounded(value, error);
  return {value, error + functionRoundings * unitRoundoff * sumOfTerms(op, exact.data(), value)};
}

Errors errorsOfFused(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  const auto &own = node.get<FusedAttributes>();
  llvm::SmallVector<Shape, 4> strides;
  for (const HostTensor *operand : operands)
    strides.push_back(broadcastStrides(operand->type.shape(), own.shape));
  Errors errors(node.resultCount(), std::vector<double>(node.result()->type().elements()));
  std::vector<Tracked> known, unstored;
  forEachIndex(own.shape, [&](int64_t flat, llvm::ArrayRef<int64_t> coordinates) {
    known.clear();
    for (size_t i = 0; i < operands.size(); ++i)
      known.push_back(operands[i]->values[flatIndex(coordinates, strides[i])]);
    unstored = known;
    for (const Expression::Step &step : own.body.steps) {
      llvm::SmallVector<Tracked, 3> arguments;
      for (int32_t argument : step.arguments)
        arguments.push_back(known[argument]);
      const bool isGiven = step.op == Op::constant || step.op == Op::randomUniform;
      unstored.push_back(isGiven ? asFloat(step.literal) : applied(step.op, step.dtype, arguments));
      known.push_back(stored(unstored.back(), step.dtype));
    }
    for (size_t i = 0; i < own.body.yields.size(); ++i)
      errors[i][flat] = unstored[own.body.yields[i]].error;
  });
  return errors;
}

} // namespace

Errors errorsOfSteps(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  if (node.op() == Op::fused)
    return errorsOfFused(node, operands);
  Errors errors(1, std::vector<double>(node.result()->type().elements()));
  for (size_t i = 0; i < errors[0].size(); ++i) {
    llvm::SmallVector<Tracked, 3> arguments;
    for (const HostTensor *operand : operands)
      arguments.push_back(operand->values[i]);
    errors[0][i] = applied(node.op(), node.result()->type().dtype(), arguments).error;
  }
  return errors;
}

} // namespace fsdpc::rounding
