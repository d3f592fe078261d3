// Which keys a query sees, as a formula: a band around the diagonal, documents, and conditions that do not depend on
// both.
#pragma once

#include "ir/builder.h"

#include <limits>

namespace fsdpc {

/// A truth that depends on some axes only: a bool value of the rank of the scores whose other axes are 1.
struct VisibilityFactor {
  Value *value = nullptr;
  bool isNegated = false;
};

/// True where lowest <= key - query <= highest, both are in one document and all factors are true; or the negation of
/// that.
struct Visibility {
  static constexpr int64_t unlimited = std::numeric_limits<int64_t>::max() / 4;

  int64_t lowest = -unlimited, highest = unlimited;
  llvm::SmallVector<VisibilityFactor, 2> factors;
  /// An integer for each key, and the same for the query of its position, in the rank of the scores; null: one
  /// document.
  Value *documents = nullptr;
  /// The band is of positions that start again in each document, a number for each key as `documents`, instead of
  /// indices; null: of indices, which is the same within documents that begin where positions do (packed_positions.h).
  Value *positions = nullptr;
  bool isNegated = false;

  static Visibility always() { return {}; }
  static Visibility of(Value *factor) {
    Visibility visibility;
    visibility.factors.push_back({factor, false});
    return visibility;
  }

  bool isAlways() const { return !isNegated && !hidesPairs() && factors.empty(); }
  bool isNever() const { return isNegated && !hidesPairs() && factors.empty(); }
  bool isUnlimited() const { return lowest == -unlimited && highest == unlimited; }
  /// Whether some pairs of a query and a key are hidden, by more than factors.
  bool hidesPairs() const { return !isUnlimited() || documents; }
};

/// If the negation has no such form with `isNegated` unset, it is set.
Visibility negationOf(Visibility visibility);

/// nullopt if the conjunction has no such form.
std::optional<Visibility> bothOf(const Visibility &a, const Visibility &b);
std::optional<Visibility> eitherOf(const Visibility &a, const Visibility &b);

} // namespace fsdpc
