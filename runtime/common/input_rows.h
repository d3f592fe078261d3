// One sample's part of an input of the program.
#pragma once

#include "runtime/common/element_type.h"

#include <optional>

namespace fsdpc::rt {

inline std::int64_t rowElements(const InputInfo &input) { return input.shape.elements() / input.shape.dims[0]; }
inline std::int64_t rowBytes(const InputInfo &input) { return rowElements(input) * byteSize(input.dtype); }

/// Whether its elements are indices or labels, which have a range.
inline bool hasRange(const InputInfo &input) {
  return (input.indexLimit > 0 || !input.ranges.empty()) && !isFloat(input.dtype);
}

/// The label that the loss ignores; nullopt if it does not ignore the same one wherever it reads the input.
inline std::optional<std::int64_t> ignoredLabel(const InputInfo &input) {
  if (input.hasIgnoreIndex)
    return input.ignoreIndex;
  for (const IndexRangeInfo &range : input.ranges)
    if (!range.hasIgnoreIndex || range.ignoreIndex != input.ranges.front().ignoreIndex)
      return std::nullopt;
  return input.ranges.empty() ? std::nullopt : std::optional(input.ranges.front().ignoreIndex);
}

} // namespace fsdpc::rt
