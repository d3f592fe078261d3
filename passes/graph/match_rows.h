// Matchers shared by the normalisations over rows: values with one element per row, or one row shared by all.
#pragma once

#include "ir/builder.h"
#include "passes/graph/match.h"
#include <optional>

namespace fsdpc {

/// The normalised rows: x over its axes [axis, rank).
struct Rows {
  Value *x = nullptr;
  int64_t axis = 0;
  friend bool operator==(const Rows &, const Rows &) = default;
};

/// If `value` holds one mean per row, the rows. Matches sum * 1/n and sum / n.
std::optional<Rows> meanOf(Value *value);

/// The value with one element per row that `value` repeats over its rows; null if there is none.
Value *perRow(Value *value, const Rows &rows);

/// The value with the shape of one row that `value` repeats for every row, built here; null if there is none.
Value *sameForEveryRow(Value *value, const Rows &rows, Builder &builder);

Shape rowShape(const Rows &rows);

/// y if the value is sqrt(y), also as a power.
Value *underRoot(Value *value);
/// y if the value is 1 / sqrt(y).
Value *underInverseRoot(Value *value);

/// Epsilon if the value is a sum of it and an operand accepted by `isTheOther`. `value` may be null.
std::optional<double> epsilonBeside(Value *value, llvm::function_ref<bool(Value *)> isTheOther);

} // namespace fsdpc
