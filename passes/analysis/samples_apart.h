// Whether a model computes each sample by itself.
#pragma once

#include "ir/module.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

/// `one` is the graph stage of a model for one sample, `batch` the same for two or more. Is the batch the graph of one
/// sample for each of its samples?
/// - Every value of `batch` that loss terms or an output need is made of one sample, of what no sample enters, or of
///   several samples side by side (batch_axis.h). Outputs that are one number, and the model's own loss, may sum.
/// - Samples have a part in every output that has a row for each of them.
/// - Both have the same numbers as constants: none depends on the size of the batch.
/// The error names the first node where this is not so.
llvm::Error checkSamplesApart(const Module &one, const Module &batch);

} // namespace fsdpc
