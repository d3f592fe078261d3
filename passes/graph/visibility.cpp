#include "passes/graph/visibility.h"

#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

namespace {

/// A negated half of the plane is the other half, a negated factor a factor.
Visibility withoutNegation(Visibility visibility) {
  const bool hasLowest = visibility.lowest != -Visibility::unlimited,
             hasHighest = visibility.highest != Visibility::unlimited;
  if (!visibility.isNegated || hasLowest + hasHighest + visibility.factors.size() != 1)
    return visibility;
  Visibility plain;
  if (hasLowest)
    plain.highest = visibility.lowest - 1;
  else if (hasHighest)
    plain.lowest = visibility.highest + 1;
  else
    plain.factors.push_back({visibility.factors[0].value, !visibility.factors[0].isNegated});
  return plain;
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
  if (a.isNegated || b.isNegated)
    return std::nullopt;
  Visibility both = a;
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
