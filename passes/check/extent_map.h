// The last writer of each byte of the arenas.
#pragma once

#include "ir/node.h"
#include <map>

namespace fsdpc::check {

class ExtentMap {
public:
  /// The buffers that hold bytes of [place, place + bytes), by ascending offset, without consecutive duplicates.
  void overlapping(Place place, int64_t bytes, llvm::SmallVectorImpl<int32_t> &buffers) const;
  /// Assigns these bytes to `buffer`. Requires: bytes > 0, and the end does not overflow.
  void assign(Place place, int64_t bytes, int32_t buffer);

private:
  struct Extent {
    int64_t end;
    int32_t buffer;
  };
  /// By first byte; disjoint.
  using Extents = std::map<int64_t, Extent>;
  static Extents::const_iterator firstAfter(const Extents &extents, int64_t offset);
  const Extents &of(Space space) const { return spaces[indexOf(space)]; }

  Extents spaces[std::size(allSpaces)];
};

} // namespace fsdpc::check
