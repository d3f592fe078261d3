// The last accesses to each byte, on every queue of a device.
#pragma once

#include "ir/node.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <array>
#include <map>

namespace fsdpc::check {

/// The compute stream and the streams of transfers.
inline constexpr size_t queueCount = 1 + std::size(transferStreams);
inline constexpr size_t computeQueue = 0;
inline size_t queueOf(Stream stream) {
  return stream == Stream::compute || stream == Stream::host || stream == Stream::none ? computeQueue
                                                                                       : 1 + laneOf(stream);
}

/// Per queue, the last operation of it that has certainly ended, counted from 1; 0: none.
struct QueueClock {
  std::array<int64_t, queueCount> ended = {};

  void join(const QueueClock &other) {
    for (size_t i = 0; i < ended.size(); ++i)
      ended[i] = std::max(ended[i], other.ended[i]);
  }
};

struct Access {
  int64_t operation = 0; ///< its number on its queue; 0: none
  const Node *node = nullptr;
};

/// The last accesses to a byte. A write supersedes earlier accesses.
struct LastAccesses {
  Access write;
  size_t writeQueue = computeQueue;
  std::array<Access, queueCount> reads = {};
};

class AccessMap {
public:
  /// Visits the accesses so far to the bytes of [place, place + bytes), with one call per range of bytes with equal
  /// accesses. The visitor returns false to stop.
  void visit(Place place, int64_t bytes, llvm::function_ref<bool(const LastAccesses &)> visitor) const;
  void read(Place place, int64_t bytes, size_t queue, Access access);
  void write(Place place, int64_t bytes, size_t queue, Access access);

private:
  struct Extent {
    int64_t end;
    LastAccesses last;
  };
  using Extents = std::map<int64_t, Extent>;
  /// Ensures that an extent begins at `offset`, if an extent contains it.
  static void splitAt(Extents &extents, int64_t offset);
  Extents &of(Space space) { return spaces[indexOf(space)]; }

  Extents spaces[std::size(allSpaces)];
};

} // namespace fsdpc::check
