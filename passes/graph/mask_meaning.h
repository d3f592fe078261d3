// What a value in the making of a mask is, as a function of the position on each axis of the scores.
#pragma once

#include "ir/node.h"
#include "passes/graph/visibility.h"

#include <variant>

namespace fsdpc {

/// constant + sum of steps[axis] * (position on this axis of the scores)
struct Linear {
  double constant = 0;
  llvm::SmallVector<double, 5> steps;
};

/// One number where visible, another elsewhere. Truths are 1 and 0.
struct Choice {
  Visibility visible;
  double yes = 1, no = 0;
};

/// Numbers or truths of any kind, in the rank of the scores, of size 1 on axes that they do not depend on.
struct Opaque {
  Value *value;
};

using Meaning = std::variant<std::monostate, Linear, Choice, Opaque>;

inline bool isUnknown(const Meaning &meaning) { return std::holds_alternative<std::monostate>(meaning); }

bool isConstant(const Linear &linear);
/// The number, if the meaning is one number everywhere.
std::optional<double> constantOf(const Meaning &meaning);
/// a + factor * b
Linear sumOf(const Linear &a, const Linear &b, double factor);

/// The result of an elementwise node, if operands of these meanings say it.
Meaning combine(const Node &node, llvm::ArrayRef<Meaning> operands);

} // namespace fsdpc
