// Elementwise steps with inverses (1 + w, -exp(w), sigmoid(w) / 4), which can be computed back.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>
#include <vector>

namespace fsdpc {

/// One step: f(value), or value and scalar in that order, or the other way round.
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
/// Of those: does it take a scalar?
bool takesScalar(llvm::StringRef op);

/// All orders of the steps; the last stays where it is if `isLastKnown`. None for more than four steps, of which no
/// order is ever the only one.
std::vector<ComputedChain> ordersOf(llvm::ArrayRef<ChainStep> steps, bool isLastKnown);

/// The chain's result, rounded to f32 behind each step as the exporter computed it.
float computeForth(llvm::ArrayRef<ChainStep> chain, float x);

/// Does the chain, computed in f32 step by step, give the stored values from the parameter's, up to a rounding of each
/// step and of the parameter?
bool gives(const ComputedChain &chain, llvm::ArrayRef<float> parameter, llvm::ArrayRef<float> stored);

/// The parameter, rounded from doubles, that gives the stored values; none if there is none.
std::optional<std::vector<float>> computeBack(const ComputedChain &chain, llvm::ArrayRef<float> stored);

/// "add 1, exp", for messages.
std::string toString(const ComputedChain &chain);

} // namespace fsdpc
