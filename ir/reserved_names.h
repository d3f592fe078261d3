// Names of arguments and results that the compiler gives itself. A model whose inputs or outputs are called so is
// refused by name (frontend/onnx): nothing could tell the two apart.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace fsdpc::names {

// Of a loss that the graph computes (frontend/onnx/import.h), results of forward.
inline constexpr llvm::StringLiteral lossTerms = "loss_terms";
inline constexpr llvm::StringLiteral lossCounts = "loss_counts";

// Results that the program reads (runtime/common/program.h).
inline constexpr llvm::StringLiteral loss = "loss";
inline constexpr llvm::StringLiteral lossSum = "loss_sum";
inline constexpr llvm::StringLiteral count = "count"; ///< of what a mean divides by; carried to micro_step
inline constexpr llvm::StringLiteral correct = "correct";
inline constexpr llvm::StringLiteral total = "total";
inline constexpr llvm::StringLiteral outputPrefix = "output."; ///< of the model's outputs in eval_step

/// The input with a weight for each sample of the batch, f32[B].
inline constexpr llvm::StringLiteral sampleWeight = "sample_weight";

/// Results, and arguments of update, that are gradients of states.
inline constexpr llvm::StringLiteral gradientPrefix = "grad.";

/// Futures of gathers that a step leaves to the next one.
inline constexpr llvm::StringLiteral nextPrefix = "next.";

/// May no input of a graph be called so? Functions of a step find their arguments by these names.
inline bool isReserved(llvm::StringRef input) {
  return input == count || input == sampleWeight || input.starts_with(gradientPrefix) || input.starts_with(nextPrefix);
}

/// May no output of a graph be called so?
inline bool isLossPart(llvm::StringRef output) { return output == lossTerms || output == lossCounts; }

} // namespace fsdpc::names
