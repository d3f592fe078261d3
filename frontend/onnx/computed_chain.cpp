#include "frontend/onnx/computed_chain.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace fsdpc {

namespace {

constexpr size_t maxSteps = 4;

double applyUnary(llvm::StringRef op, double x) {
  if (op == "Neg")
    return -x;
  if (op == "Exp")
    return std::exp(x);
  if (op == "Log")
    return std::log(x);
  if (op == "Sigmoid")
    return 1 / (1 + std::exp(-x));
  if (op == "Tanh")
    return std::tanh(x);
  if (op == "Softplus")
    return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
  if (op == "Sqrt")
    return std::sqrt(x);
  return 1 / x;
}

double invertUnary(llvm::StringRef op, double y) {
  if (op == "Neg")
    return -y;
  if (op == "Exp")
    return std::log(y);
  if (op == "Log")
    return std::exp(y);
  if (op == "Sigmoid")
    return std::log(y) - std::log1p(-y);
  if (op == "Tanh")
    return std::atanh(y);
  if (op == "Softplus")
    return y + std::log(-std::expm1(-y));
  if (op == "Sqrt")
    return y < 0 ? std::numeric_limits<double>::quiet_NaN() : y * y;
  return 1 / y;
}

double applyBinary(llvm::StringRef op, double a, double b) {
  return op == "Add" ? a + b : op == "Sub" ? a - b : op == "Mul" ? a * b : a / b;
}

double apply(const ChainStep &step, double x) {
  if (!step.scalar)
    return applyUnary(step.op, x);
  return step.isScalarFirst ? applyBinary(step.op, *step.scalar, x) : applyBinary(step.op, x, *step.scalar);
}

double invert(const ChainStep &step, double y) {
  if (!step.scalar)
    return invertUnary(step.op, y);
  const double scalar = *step.scalar;
  if (step.op == "Add")
    return y - scalar;
  if (step.op == "Mul")
    return y / scalar;
  if (step.op == "Sub")
    return step.isScalarFirst ? scalar - y : y + scalar;
  return step.isScalarFirst ? scalar / y : y * scalar;
}

float distanceToNext(float x) {
  const float magnitude = std::fabs(x);
  return std::nextafter(magnitude, std::numeric_limits<float>::infinity()) - magnitude;
}

bool givesValue(const ComputedChain &chain, float parameter, float stored) {
  const float value = evaluateChain(chain, parameter);
  if (!std::isfinite(value) || !std::isfinite(parameter))
    return false;
  if (value == stored)
    return true;
  // The larger of one rounding per step and the change that a parameter one rounding away makes.
  double allowed = static_cast<double>(chain.size()) * static_cast<double>(distanceToNext(stored));
  for (float towards : {-1.0F, 1.0F}) {
    const float other = evaluateChain(chain, std::nextafter(parameter, towards * std::numeric_limits<float>::max()));
    if (std::isfinite(other))
      allowed = std::max(allowed, std::fabs(static_cast<double>(other) - value));
  }
  return std::fabs(static_cast<double>(value) - stored) <= allowed;
}

} // namespace

// Computed in double, sums and products of two floats round to the correct f32.
float evaluateChain(llvm::ArrayRef<ChainStep> chain, float x) {
  for (const ChainStep &step : chain)
    x = static_cast<float>(apply(step, x));
  return x;
}

llvm::StringRef invertibleOp(llvm::StringRef operation) {
  return llvm::StringSwitch<llvm::StringRef>(operation)
      .Case("neg", "Neg")
      .Case("exp", "Exp")
      .Case("log", "Log")
      .Case("sigmoid", "Sigmoid")
      .Case("tanh", "Tanh")
      .Case("softplus", "Softplus")
      .Case("sqrt", "Sqrt")
      .Case("reciprocal", "Reciprocal")
      .Case("add", "Add")
      .Cases("sub", "rsub", "Sub")
      .Case("mul", "Mul")
      .Case("div", "Div")
      .Default("");
}

bool takesScalar(llvm::StringRef op) { return op == "Add" || op == "Sub" || op == "Mul" || op == "Div"; }

std::vector<ComputedChain> ordersOf(llvm::ArrayRef<ChainStep> steps, bool isLastKnown) {
  std::vector<ComputedChain> orders;
  if (steps.empty() || steps.size() > maxSteps)
    return orders;
  std::vector<size_t> order(steps.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto end = order.end() - (isLastKnown ? 1 : 0);
  do {
    ComputedChain chain;
    for (size_t i : order)
      chain.push_back(steps[i]);
    if (std::find(orders.begin(), orders.end(), chain) == orders.end())
      orders.push_back(std::move(chain));
  } while (std::next_permutation(order.begin(), end));
  return orders;
}

bool gives(const ComputedChain &chain, llvm::ArrayRef<float> parameter, llvm::ArrayRef<float> stored) {
  if (parameter.size() != stored.size())
    return false;
  for (size_t i = 0; i < stored.size(); ++i)
    if (!givesValue(chain, parameter[i], stored[i]))
      return false;
  return true;
}

std::optional<std::vector<float>> computeBack(const ComputedChain &chain, llvm::ArrayRef<float> stored) {
  std::vector<float> parameter;
  parameter.reserve(stored.size());
  for (float value : stored) {
    double x = value;
    for (size_t i = chain.size(); i-- > 0;)
      x = invert(chain[i], x);
    parameter.push_back(static_cast<float>(x));
    if (!givesValue(chain, parameter.back(), value))
      return std::nullopt;
  }
  return parameter;
}

std::string toString(const ComputedChain &chain) {
  std::string text;
  llvm::raw_string_ostream out(text);
  for (const ChainStep &step : chain) {
    out << (text.empty() ? "" : ", ");
    if (step.scalar && step.isScalarFirst)
      out << llvm::format("%.9g ", *step.scalar);
    out << llvm::StringRef(step.op).lower();
    if (step.scalar && !step.isScalarFirst)
      out << llvm::format(" %.9g", *step.scalar);
  }
  return text;
}

} // namespace fsdpc
