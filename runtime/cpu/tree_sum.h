// The sum over ranks: a balanced binary tree in rank order.
//
//   sum(r0 .. rn-1) = sum(first p) + sum(the other n - p),  p the largest power of two below n
//
// so ((r0+r1)+(r2+r3)) for four, ((r0+r1)+r2) for three, ((r0+r1)+(r2+r3))+r4 for five. Every transport and every
// collective adds in this order, element by element, in the element's own type, so results are bitwise identical on
// every rank and transport. 16-bit elements are added in float, and the total is rounded once.
#pragma once

#include "runtime/common/program.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fsdpc::rt {

/// destination[i] = sum over k < count of element i of `sources[k]`, for i < elements. `destination` may be one of the
/// sources, otherwise it overlaps none. Supports floats, i64 and i32; any other type is a Failure{internal}.
void treeSum(const std::byte *const *sources, int count, void *destination, std::int64_t elements, DType dtype);

// Where ranks live on several hosts, each host adds what its ranks can add alone, and sends the sums. They are sums of
// whole subtrees of the same tree, so the result has the same bits wherever the ranks live.

/// The members [first, first + count) of a sum, all under one node of the tree.
struct Subtree {
  int first = 0;
  int count = 0;
};

/// The largest subtrees of the tree over `chosen.size()` members whose members are all chosen, in order. Together they
/// contain every chosen member once.
std::vector<Subtree> subtreesOf(const std::vector<bool> &chosen);

/// Bytes of an element of a partial sum. 16-bit elements are kept as float until the total is rounded.
int partialByteSize(DType dtype);

/// The sum of one subtree, whose `count` members have these sources, as a partial sum.
void sumSubtree(const std::byte *const *sources, int count, std::byte *partial, std::int64_t elements, DType dtype);

/// One subtree of a sum: the operands of its members, or their partial sum.
struct SumPart {
  Subtree members;
  const std::byte *const *operands = nullptr; ///< one per member
  const std::byte *partial = nullptr;         ///< used if there are no operands
};

/// The total of parts that are the leaves of one tree, in order. Otherwise like treeSum.
void sumParts(std::span<const SumPart> parts, void *destination, std::int64_t elements, DType dtype);

} // namespace fsdpc::rt
