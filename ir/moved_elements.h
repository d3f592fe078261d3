// Where the elements of a value come from, for ops that only move them.
#pragma once

#include "ir/node.h"

namespace fsdpc {

/// In row-major order, per element of a value: the flat index of the element of another value that it is; -1 where it
/// is a constant.
using ElementSources = std::vector<int64_t>;

/// Of the node's result among the elements of operand 0, where the op is reshape, transpose, slice, broadcast, pad,
/// copy or cast (which changes their width only). None for other ops.
std::optional<ElementSources> movedElements(const Node &node);

/// The same for rows along the last axis, where the op leaves that axis as it is: one entry per row.
std::optional<ElementSources> movedRows(const Node &node);

/// `sources` are of a value among the elements of a second one; `further` has those of the second among a third one's.
ElementSources composed(const ElementSources &sources, const ElementSources &further);

} // namespace fsdpc
