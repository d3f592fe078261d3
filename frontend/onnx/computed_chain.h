// Chains of invertible elementwise steps (1 + w, -exp(w), sigmoid(w) / 4).
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>
#include <vector>

namespace fsdpc {

/// One step: f(value), f(value, scalar) or f(scalar, value).
struct ChainStep {
  std::string op; ///< of ONNX: "Neg", "Add"
  std::optional<float> scalar;
  bool isScalarFirst = false;

  bool operator==(const ChainStep &) const = default;
};
using ComputedChain = std::vector<ChainStep>;

/// The ONNX op of a traced operation that has an inverse wherever it is defined: neg, exp, log, sigmoid, tanh,
/// softplus, sqrt, reciprocal, and with a scalar add, sub, mul, div. "" for others.
llvm::StringRef invertibleOp(llvm::StringRef operation);
/// True if the op, one of those above, has a scalar operand.
bool takesScalar(llvm::StringRef op);

/// All orders of the steps. The last step stays last if `isLastKnown`. Empty for more than four steps, where no order
/// is ever unique.
std::vector<ComputedChain> ordersOf(llvm::ArrayRef<ChainStep> steps, bool isLastKnown);

/// The chain's result, rounded to f32 after each step as the exporter computed it.
float evaluateChain(llvm::ArrayRef<ChainStep> chain, float x);

/// True if the chain, computed in f32 step by step, maps the parameter's values to the stored ones, up to one rounding
/// of each step and of the parameter.
bool gives(const ComputedChain &chain, llvm::ArrayRef<float> parameter, llvm::ArrayRef<float> stored);

/// The parameter whose chain yields the stored values, rounded from doubles. nullopt if there is none.
std::optional<std::vector<float>> computeBack(const ComputedChain &chain, llvm::ArrayRef<float> stored);

/// "add 1, exp", for messages.
std::string toString(const ComputedChain &chain);

} // namespace fsdpc
