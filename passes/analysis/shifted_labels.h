// Detects labels that a loss in the graph shifts by one or more positions.
#pragma once

#include "ir/module.h"

namespace fsdpc {

/// The integer input [B, T] of labels such that every class loss over them compares the label of position t + k, k >=
/// 1, with the scores of position t: scores[:, :-1] against labels[:, 1:], or labels that are padded at the end and
/// sliced. Rows are followed through nodes that only move them, and for scores also through nodes that compute each row
/// separately, until there is one row per label. "" if there is no such input.
std::string shiftedLabels(const Function &forward);

} // namespace fsdpc
