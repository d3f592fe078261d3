// arena_layout: offsets for the buffers of one arena.
//
// The problem. Two buffers whose live ranges overlap must not share bytes; two others may. The arena should be small.
// Finding the smallest arena is the dynamic storage allocation problem, which is NP-hard, so both algorithms here are
// greedy. A live range is an interval of node positions, counted over all functions. A buffer that a step passes to the
// next has two: from its start to the end of the step, and from the beginning of the step to its last use
// (Buffer::carriedUntil). plan_memory.cpp calls layOut once per memory space. Permanent buffers (states, inputs,
// constants) already have offsets then, below the others. A result that is written over its operand shares one buffer
// with it (live_ranges.cpp).
//
// The idea. Up to largestFirstLimit buffers are placed largest first. Each takes the lowest aligned offset at which it
// overlaps no placed buffer with an overlapping live range. Large buffers find no obstacles, small ones fill the gaps.
// More buffers than that are placed twice, and the lower arena is taken. Once only the largest of them are placed like
// this, and the others above them. Once all are placed in order of their begin, as a runtime allocator would do it. A
// buffer that has ended returns its bytes to a free list. A new one takes the smallest hole that fits, or else the
// arena grows. That order cannot handle a live range that continues in the next step. So these buffers are placed next
// to each other at the bottom. While none of them is live, the bottom is a hole for buffers that begin and end in that
// time.
//
// Example: a part of micro_step, shortened, as tests/passes/plan_memory.fsir plans it (cpu, alignment 64).
//
//   %first.p.full.future = all_gather.start %first.p ... : future<f32[128]> on(comm) at(private+0x900)
//   %second.p.full.future = all_gather.start %second.p ... : future<f32[128]> on(comm) at(private+0xb00)
//   %0 = matmul %x, %first.weight : f32[6,7] on(compute) ... work(640 private+0x680)
//   %2 = free %first.p.full : token on(compute)
//   %second.frozen.full.future = all_gather.start ... after(%2) : future<f32[64]> on(comm) at(private+0x900)
//
// States and inputs are below 0x680. No larger buffer is live at the same time as the four buffers placed here. The
// workspace has 640 bytes and is placed first, at 0x680. %first.p.full has 512 bytes and overlaps it in time: 0x900.
// %second.p.full overlaps both: 0xb00. %second.frozen.full has 256 bytes. It overlaps %second.p.full and the workspace
// of the next matmul, which is at 0x680 again; %first.p.full is freed by then. So the lowest gap is at 0x900.
// plan_memory.cpp adds the ordering edge, after(%2).
//
// What is checked. Nothing is proved here. passes/check does not use live ranges. On every compile of the whole
// pipeline it executes the functions on an exact map of bytes. ArenaMemory::occupy rejects a buffer outside its arena
// or over one that is in use (S6), and one that no edge orders after the free (S5). tests/mutation moves buffers
// ("overlapping offsets", "overlapping workspace", "wrong place"); at least 98 % of the faults of each class must be
// rejected. tests/unit/arena_layout_test.cpp compares all pairs of random buffers under both algorithms, and checks the
// alignment and that the height is at most twice the maximum of live bytes plus one alignment.
//
// Cost, with n buffers. Largest first is O(n^2): each buffer scans all placed buffers. The limit of 3000 keeps that
// below 4.5 million comparisons, also where only the largest are placed so. Best fit is O(n log n), for the sort and a
// few map operations per buffer, except for one search: FreeList::erase is linear in the number of holes of one size.
// Live buffers separate the holes, so there is at most one hole more than live buffers.
#include "passes/plan/arena_layout.h"

#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

namespace fsdpc {

namespace {

constexpr size_t largestFirstLimit = 3000;

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

/// The holes of an arena, by offset and by size. Adjacent holes are merged.
class FreeList {
public:
  /// The smallest hole with at least this many bytes; nullopt if there is none.
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

/// Places buffers in order of time. Buffers that one step passes to the next are at the bottom.
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
  int64_t awayFrom = 0;                                    ///< position from which no carried buffer is live
  int64_t awayUntil = std::numeric_limits<int64_t>::max(); ///< the first position at which one is live again
  std::multimap<int64_t, size_t> active;                   ///< end -> buffer
};

/// The largest buffers largest first, and the others above them in order of time.
ArenaLayout largestBelow(llvm::ArrayRef<Buffer *> buffers, int64_t alignment) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  llvm::stable_sort(order, [&](size_t a, size_t b) { return buffers[a]->bytes > buffers[b]->bytes; });
  std::sort(order.begin() + largestFirstLimit, order.end());
  std::vector<Buffer *> sorted;
  for (size_t index : order)
    sorted.push_back(buffers[index]);
  const llvm::ArrayRef<Buffer *> all(sorted);
  const ArenaLayout below = largestFirst(all.take_front(largestFirstLimit), alignment),
                    above = BestFit(all.drop_front(largestFirstLimit), alignment).run();
  const int64_t base = roundUp(below.heightBytes, alignment);
  ArenaLayout layout{std::vector<int64_t>(buffers.size()), base + above.heightBytes};
  for (size_t i = 0; i < order.size(); ++i)
    layout.offsets[order[i]] = i < largestFirstLimit ? below.offsets[i] : base + above.offsets[i - largestFirstLimit];
  return layout;
}

} // namespace

ArenaLayout layOut(llvm::ArrayRef<Buffer *> buffers, int64_t alignmentBytes) {
  if (buffers.size() <= largestFirstLimit)
    return largestFirst(buffers, alignmentBytes);
  ArenaLayout inTime = BestFit(buffers, alignmentBytes).run(), bySize = largestBelow(buffers, alignmentBytes);
  return bySize.heightBytes < inTime.heightBytes ? bySize : inTime;
}

} // namespace fsdpc
