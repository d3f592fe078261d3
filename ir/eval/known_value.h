// Values that depend on constants alone, evaluated where somebody wants to know them.
#pragma once

#include "ir/eval/evaluate.h"

#include <optional>

namespace fsdpc {

/// All elements of a value that is computed from constants alone; nullopt for anything else, for null, and if the value
/// or one that it is made from has more than `maxElements`.
std::optional<HostTensor> knownValue(const Value *value, int64_t maxElements = int64_t(1) << 24);

/// The constant that a value is, or is a broadcast of; null for other values.
const Node *constantBelow(const Value *value);

/// For a node all of whose operands are constants or broadcasts of constants: the shape in which its first result has
/// to be computed. For an elementwise op it leaves out what the operands only repeat; the result is then broadcast.
Shape computedShape(const Node &node);

/// Whether such a node computes few elements, or no more than its operands store. What would grow stays a formula:
/// masks, ranges, tables of angles.
bool isWorthFolding(const Node &node);

/// The results of such a node, the first one in its computed shape.
std::vector<HostTensor> evaluateOnConstants(const Node &node);

} // namespace fsdpc
