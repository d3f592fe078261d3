// One position of a cross entropy: shared by cross_entropy and linear_cross_entropy.
#pragma once

#include "ir/op.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

/// (C3) label_smoothing is in [0, 1].
llvm::Error checkSmoothing(const OpInfo &info, const LossAttributes &attributes);
/// The number of classes of a linear_cross_entropy or its derivative.
int64_t classesOf(const Node &linearLoss);
/// log(sum of exp(z)).
double logSumExp(llvm::ArrayRef<double> z);
/// The term of logits z: 0 for the ignored label, NaN for one that is no class.
double crossEntropyTerm(const LossAttributes &attributes, llvm::ArrayRef<double> z, double label, double lse);
/// The derivative of the term by each logit, times `dterm`.
void crossEntropySlopes(const LossAttributes &attributes, llvm::ArrayRef<double> z, double label, double lse,
                        double dterm, llvm::MutableArrayRef<double> slopes);

} // namespace fsdpc
