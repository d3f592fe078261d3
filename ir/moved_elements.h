// The origin of the elements of a value, for ops that only move elements.
#pragma once

#include "ir/node.h"

namespace fsdpc {

/// For each element of a value in row-major order: the flat index of its source element in another value, or -1 for a
/// constant.
using ElementSources = std::vector<int64_t>;

/// Sources of the node's result in operand 0, for reshape, transpose, slice, broadcast, pad, copy and cast (which
/// changes only the element type). nullopt for other ops.
std::optional<ElementSources> movedElements(const Node &node);

/// The same for rows along the last axis, one entry per row. nullopt also if the op changes that axis.
std::optional<ElementSources> movedRows(const Node &node);

/// The composition: `sources` maps a value to a second one, `further` maps the second to a third.
ElementSources composed(const ElementSources &sources, const ElementSources &further);

} // namespace fsdpc
