// Labels that a loss inside the graph compares one position later than they come.
#pragma once

#include "ir/module.h"

namespace fsdpc {

/// The integer input [B, T] of labels such that every class loss over them compares the label of position t + k, k >=
/// 1, with the scores of position t: scores[:, :-1] against labels[:, 1:], or labels that are padded behind and sliced.
/// Rows are followed through whatever only moves them, scores also through what computes each row by itself, until
/// there is one for each label. "" where there is no such input.
std::string shiftedLabels(const Function &forward);

} // namespace fsdpc
