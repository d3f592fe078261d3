// One sample's part of an input of the program.
#pragma once

#include "runtime/common/element_type.h"

#include <span>

namespace fsdpc::rt {

inline std::int64_t rowElements(const InputInfo &input) { return input.shape.elements() / input.shape.dims[0]; }
inline std::int64_t rowBytes(const InputInfo &input) { return rowElements(input) * byteSize(input.dtype); }

/// Whether its elements are indices or labels, which have a range.
inline bool hasRange(const InputInfo &input) {
  return (input.indexLimit > 0 || !input.ranges.empty()) && !isFloat(input.dtype);
}

/// The range of all elements of a sample, if `ranges` is empty.
inline IndexRangeInfo wholeRange(const InputInfo &input) {
  return {0, rowElements(input), input.indexLimit, input.ignoreIndex, input.hasIgnoreIndex};
}

/// The ranges of a sample's elements. `whole`: wholeRange(input), which outlives the result.
inline std::span<const IndexRangeInfo> rangesOf(const InputInfo &input, const IndexRangeInfo &whole) {
  return input.ranges.empty() ? std::span(&whole, 1) : input.ranges;
}

} // namespace fsdpc::rt
