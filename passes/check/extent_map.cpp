#include "passes/check/extent_map.h"

namespace fsdpc::check {

/// The first extent that ends after `offset`.
ExtentMap::Extents::const_iterator ExtentMap::firstAfter(const Extents &extents, int64_t offset) {
  auto found = extents.upper_bound(offset);
  if (found != extents.begin() && std::prev(found)->second.end > offset)
    --found;
  return found;
}

void ExtentMap::overlapping(Place place, int64_t bytes, llvm::SmallVectorImpl<int32_t> &buffers) const {
  const Extents &extents = of(place.space);
  int64_t end = place.offsetBytes + bytes;
  for (auto i = firstAfter(extents, place.offsetBytes); i != extents.end() && i->first < end; ++i)
    if (buffers.empty() || buffers.back() != i->second.buffer)
      buffers.push_back(i->second.buffer);
}

void ExtentMap::assign(Place place, int64_t bytes, int32_t buffer) {
  Extents &extents = spaces[indexOf(place.space)];
  int64_t begin = place.offsetBytes, end = begin + bytes;
  auto i = firstAfter(extents, begin);
  while (i != extents.end() && i->first < end) {
    auto [first, old] = *i;
    i = extents.erase(i);
    if (first < begin)
      extents[first] = {begin, old.buffer};
    if (old.end > end)
      extents[end] = {old.end, old.buffer};
  }
  extents[begin] = {end, buffer};
}

} // namespace fsdpc::check
