#include "passes/check/access_map.h"

namespace fsdpc::check {

void AccessMap::splitAt(Extents &extents, int64_t offset) {
  auto next = extents.upper_bound(offset);
  if (next == extents.begin())
    return;
  auto holder = std::prev(next);
  if (holder->first == offset || holder->second.end <= offset)
    return;
  Extent behind = holder->second;
  holder->second.end = offset;
  extents.emplace_hint(next, offset, behind);
}

void AccessMap::visit(Place place, int64_t bytes, llvm::function_ref<bool(const LastAccesses &)> visitor) const {
  const Extents &extents = spaces[indexOf(place.space)];
  auto i = extents.upper_bound(place.offsetBytes);
  if (i != extents.begin() && std::prev(i)->second.end > place.offsetBytes)
    --i;
  for (; i != extents.end() && i->first < place.offsetBytes + bytes; ++i)
    if (!visitor(i->second.last))
      return;
}

void AccessMap::read(Place place, int64_t bytes, size_t queue, Access access) {
  Extents &extents = of(place.space);
  const int64_t begin = place.offsetBytes, end = begin + bytes;
  splitAt(extents, begin);
  splitAt(extents, end);
  int64_t next = begin;
  for (auto i = extents.lower_bound(begin); next < end; ++i) {
    if (i == extents.end() || i->first > next) { // no operation has accessed these bytes so far
      const int64_t gapEnd = i == extents.end() ? end : std::min(end, i->first);
      i = extents.emplace_hint(i, next, Extent{gapEnd, {}});
    }
    i->second.last.reads[queue] = access;
    next = i->second.end;
  }
}

void AccessMap::write(Place place, int64_t bytes, size_t queue, Access access) {
  Extents &extents = of(place.space);
  const int64_t begin = place.offsetBytes, end = begin + bytes;
  splitAt(extents, begin);
  splitAt(extents, end);
  extents.erase(extents.lower_bound(begin), extents.lower_bound(end));
  LastAccesses last;
  last.write = access;
  last.writeQueue = queue;
  extents[begin] = {end, last};
}

} // namespace fsdpc::check
