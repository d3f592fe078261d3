#include "passes/graph/visibility.h"

#include "passes/graph/packed_positions.h"
#include "passes/graph/same_elements.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

namespace {

/// A negated half of the plane is the other half, a negated factor a factor.
Visibility withoutNegation(Visibility visibility) {
  const bool hasLowest = visibility.lowest != -Visibility::unlimited,
             hasHighest = visibility.highest != Visibility::unlimited;
  if (!visibility.isNegated || visibility.documents || hasLowest + hasHighest + visibility.factors.size() != 1)
    return visibility;
  Visibility plain;
  plain.positions = visibility.positions;
  if (hasLowest)
    plain.highest = visibility.lowest - 1;
  else if (hasHighest)
    plain.lowest = visibility.highest + 1;
  else
    plain.factors.push_back({visibility.factors[0].value, !visibility.factors[0].isNegated});
  return plain;
}

/// Both or the only one of two values; nullopt if they differ.
std::optional<Value *> oneOf(Value *a, Value *b) {
  if (a && b && !holdSameElements(a, b))
    return std::nullopt;
  return a ? a : b;
}

} // namespace

Visibility negationOf(Visibility visibility) {
  visibility.isNegated = !visibility.isNegated;
  return withoutNegation(std::move(visibility));
}

std::optional<Visibility> bothOf(const Visibility &a, const Visibility &b) {
  if (a.isAlways() || b.isNever())
    return b;
  if (b.isAlways() || a.isNever())
    return a;
  std::optional<Value *> documents = oneOf(a.documents, b.documents), positions = oneOf(a.positions, b.positions);
  if (a.isNegated || b.isNegated || !documents || !positions)
    return std::nullopt;
  Visibility both = a;
  both.documents = *documents;
  both.positions = *positions;
  if (both.documents && both.positions && beginWherePositionsDo(both.documents, both.positions))
    both.positions = nullptr;
  both.lowest = std::max(a.lowest, b.lowest);
  both.highest = std::min(a.highest, b.highest);
  for (const VisibilityFactor &factor : b.factors)
    if (llvm::none_of(both.factors, [&](const VisibilityFactor &other) {
          return other.value == factor.value && other.isNegated == factor.isNegated;
        }))
      both.factors.push_back(factor);
  return both;
}

std::optional<Visibility> eitherOf(const Visibility &a, const Visibility &b) {
  std::optional<Visibility> neither = bothOf(negationOf(a), negationOf(b));
  return neither ? std::optional(negationOf(*neither)) : std::nullopt;
}

} // namespace fsdpc
