// Names of arguments and results that the compiler assigns. The import (frontend/onnx) rejects models whose inputs or
// outputs have these names, because they could not be distinguished.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace fsdpc::names {

// Results of forward for a loss that the graph computes (frontend/onnx/import.h).
inline constexpr llvm::StringLiteral lossTerms = "loss_terms";
inline constexpr llvm::StringLiteral lossCounts = "loss_counts";

// Results that the runtime reads (runtime/common/program.h).
inline constexpr llvm::StringLiteral loss = "loss";
inline constexpr llvm::StringLiteral lossSum = "loss_sum";
inline constexpr llvm::StringLiteral count = "count"; ///< divisor of a mean; carried to micro_step
inline constexpr llvm::StringLiteral correct = "correct";
inline constexpr llvm::StringLiteral correctTop = "correct_top"; ///< followed by k
inline constexpr llvm::StringLiteral total = "total";
inline constexpr llvm::StringLiteral outputPrefix = "output."; ///< prefix of the model's outputs in eval_step

/// The input with a weight for each sample of the batch, f32[B].
inline constexpr llvm::StringLiteral sampleWeight = "sample_weight";

/// Prefix of results, and of arguments of update, that are gradients of states.
inline constexpr llvm::StringLiteral gradientPrefix = "grad.";

/// Prefix of futures of gathers that a step passes to the next one.
inline constexpr llvm::StringLiteral nextPrefix = "next.";

/// The field of optimizer states that are moving averages. A run starts them as their parameters.
inline constexpr llvm::StringLiteral averageField = "ema";

/// True if no graph input may have this name. The functions of a step find their arguments by these names.
inline bool isReserved(llvm::StringRef input) {
  return input == count || input == sampleWeight || input.starts_with(gradientPrefix) || input.starts_with(nextPrefix);
}

/// True if no graph output may have this name.
inline bool isLossPart(llvm::StringRef output) { return output == lossTerms || output == lossCounts; }

} // namespace fsdpc::names
