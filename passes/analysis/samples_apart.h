// Checks whether a model computes each sample independently.
#pragma once

#include "ir/module.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

/// Checks that `batch`, the graph stage of a model for two or more samples, equals `one`, its graph stage for one
/// sample, applied to each sample.
/// - Every value of `batch` that loss terms or an output need depends on one sample, on no sample, or holds several
///   samples next to each other (batch_axis.h). Scalar outputs and the model's own loss may sum over samples.
/// - Every output with a row per sample depends on the samples.
/// - Both have the same scalar constants: none depends on the batch size. The error names the first node that violates
///   this.
llvm::Error checkSeparateSamples(const Module &one, const Module &batch);

} // namespace fsdpc
