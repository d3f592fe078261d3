#include "passes/plan/arena_layout.h"

#include "llvm/ADT/STLExtras.h"
#include <map>
#include <optional>

namespace fsdpc {

namespace {

constexpr size_t largestFirstLimit = 3000;

int64_t roundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

ArenaLayout largestFirst(llvm::ArrayRef<Buffer *> buffers, int64_t alignment) {
  std::vector<size_t> order(buffers.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  llvm::stable_sort(order, [&](size_t a, size_t b) { return buffers[a]->bytes > buffers[b]->bytes; });
  ArenaLayout layout{std::vector<int64_t>(buffers.size())};
  std::vector<size_t> placed; // ascending offset
  for (size_t index : order) {
    const Buffer &buffer = *buffers[index];
    int64_t offset = 0;
    for (size_t other : placed) {
      if (!buffers[other]->meets(buffer))
        continue;
      if (offset + buffer.bytes <= layout.offsets[other])
        break;
      offset = std::max(offset, roundUp(layout.offsets[other] + buffers[other]->bytes, alignment));
    }
    layout.offsets[index] = offset;
    auto position =
        llvm::upper_bound(placed, offset, [&](int64_t value, size_t other) { return value < layout.offsets[other]; });
    placed.insert(position, index);
    layout.heightBytes = std::max(layout.heightBytes, offset + buffer.bytes);
  }
  return layout;
}

/// The holes of an arena, by place and by size. Neighbouring holes are one.
class FreeList {
public:
  /// The smallest hole that holds so many bytes; nothing if there is none.
  std::optional<int64_t> take(int64_t bytes) {
    auto fit = bySize.lower_bound(bytes);
    if (fit == bySize.end())
      return std::nullopt;
    auto hole = byOffset.find(fit->second);
    auto [offset, size] = *hole;
    erase(hole);
    if (size > bytes)
      give(offset + bytes, size - bytes);
    return offset;
  }

  void give(int64_t offset, int64_t bytes) {
    auto next = byOffset.lower_bound(offset);
    if (next != byOffset.end() && next->first == offset + bytes) {
      bytes += next->second;
      erase(next);
    }
    next = byOffset.lower_bound(offset);
    if (next != byOffset.begin())
      if (auto previous = std::prev(next); previous->first + previous->second == offset) {
        offset = previous->first;
        bytes += previous->second;
        erase(previous);
      }
    byOffset[offset] = bytes;
    bySize.emplace(bytes, offset);
  }

private:
  void erase(std::map<int64_t, int64_t>::iterator hole) {
    auto [first, last] = bySize.equal_range(hole->second);
    bySize.erase(std::find_if(first, last, [&](const auto &entry) { return entry.second == hole->first; }));
    byOffset.erase(hole);
  }

  std::map<int64_t, int64_t> byOffset; ///< offset -> bytes
  std::multimap<int64_t, int64_t> bySize;
};

/// Buffers in order of time. What one step leaves to the next keeps the bottom of the arena to itself, except for
/// buffers that come and go while it is away.
class BestFit {
public:
  BestFit(llvm::ArrayRef<Buffer *> buffers, int64_t alignment)
      : buffers(buffers), alignment(alignment), layout{std::vector<int64_t>(buffers.size())} {}

  ArenaLayout run() {
    std::vector<size_t> byBegin;
    for (size_t i = 0; i < buffers.size(); ++i)
      if (buffers[i]->carriedUntil < 0)
        byBegin.push_back(i);
      else
        keepBottom(i);
    if (layout.heightBytes > 0 && awayUntil > awayFrom)
      bottom.give(0, layout.heightBytes);
    llvm::stable_sort(byBegin, [&](size_t a, size_t b) { return buffers[a]->begin < buffers[b]->begin; });
    for (size_t index : byBegin)
      place(index);
    return std::move(layout);
  }

private:
  void keepBottom(size_t index) {
    const Buffer &buffer = *buffers[index];
    layout.offsets[index] = layout.heightBytes;
    layout.heightBytes += bytesOf(index);
    awayFrom = std::max(awayFrom, buffer.carriedUntil + 1);
    awayUntil = std::min(awayUntil, buffer.begin);
  }

  int64_t bytesOf(size_t index) const { return roundUp(buffers[index]->bytes, alignment); }
  bool isWhileAway(const Buffer &buffer) const { return awayFrom <= buffer.begin && buffer.end < awayUntil; }
  FreeList &holesFor(size_t index) { return inBottom[index] ? bottom : holes; }

  void place(size_t index) {
    const Buffer &buffer = *buffers[index];
    for (; !active.empty() && active.begin()->first < buffer.begin; active.erase(active.begin())) {
      size_t done = active.begin()->second;
      holesFor(done).give(layout.offsets[done], bytesOf(done));
    }
    active.emplace(buffer.end, index);
    std::optional<int64_t> offset = isWhileAway(buffer) ? bottom.take(bytesOf(index)) : std::nullopt;
    inBottom[index] = offset.has_value();
    if (!offset)
      offset = holes.take(bytesOf(index));
    layout.offsets[index] = offset.value_or(layout.heightBytes);
    if (!offset)
      layout.heightBytes += bytesOf(index);
  }

  llvm::ArrayRef<Buffer *> buffers;
  const int64_t alignment;
  ArenaLayout layout;
  FreeList holes, bottom;
  std::vector<bool> inBottom = std::vector<bool>(buffers.size());
  int64_t awayFrom = 0;                                    ///< position from which all of what is carried is away
  int64_t awayUntil = std::numeric_limits<int64_t>::max(); ///< the first position at which some of it is back
  std::multimap<int64_t, size_t> active;                   ///< end -> buffer
};

} // namespace

ArenaLayout layOut(llvm::ArrayRef<Buffer *> buffers, int64_t alignmentBytes) {
  return buffers.size() <= largestFirstLimit ? largestFirst(buffers, alignmentBytes)
                                             : BestFit(buffers, alignmentBytes).run();
}

} // namespace fsdpc
