// One sample's part of an input of the program.
#pragma once

#include "runtime/common/element_type.h"

namespace fsdpc::rt {

inline std::int64_t rowElements(const InputInfo &input) { return input.shape.elements() / input.shape.dims[0]; }
inline std::int64_t rowBytes(const InputInfo &input) { return rowElements(input) * byteSize(input.dtype); }

/// Whether its elements are indices or labels, which have a range.
inline bool hasRange(const InputInfo &input) {
  return (input.indexLimit > 0 || !input.ranges.empty()) && !isFloat(input.dtype);
}

} // namespace fsdpc::rt
