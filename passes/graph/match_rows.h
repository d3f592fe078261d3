// What the normalisations over rows have in common: questions about values with one number per row, or one row for all.
#pragma once

#include "ir/builder.h"
#include "passes/graph/match.h"
#include <optional>

namespace fsdpc {

/// What is normalised: x over its axes [axis, rank).
struct Rows {
  Value *x = nullptr;
  int64_t axis = 0;
  friend bool operator==(const Rows &, const Rows &) = default;
};

/// `value` holds one mean per row: of which rows? As sum * 1/n or sum / n.
std::optional<Rows> meanOf(Value *value);

/// The value with one element per row that `value` repeats over its rows; null if it is none.
Value *perRow(Value *value, const Rows &rows);

/// The value with the shape of one row that `value` repeats for every row, built; null if it is none.
Value *sameForEveryRow(Value *value, const Rows &rows, Builder &builder);

Shape rowShape(const Rows &rows);

/// y if the value is sqrt(y), also as a power.
Value *underRoot(Value *value);
/// y if the value is 1 / sqrt(y).
Value *underInverseRoot(Value *value);

/// Epsilon if the value is a sum of it and of something that `isTheOther` says is right. `value` may be null.
std::optional<double> epsilonBeside(Value *value, llvm::function_ref<bool(Value *)> isTheOther);

} // namespace fsdpc
