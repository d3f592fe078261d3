// Finds the memory accesses that are ordered in every run of a program whose actors always synchronize in the same way.
// One run suffices, with a vector clock per actor. An actor executes its operations sequentially.
#pragma once

#include "ir/node.h"
#include <string>
#include <unordered_map>
#include <vector>

namespace fsdpc::mutation {

/// For every actor the number of its operations that must have ended.
using Clock = std::vector<uint32_t>;

class HappensBefore {
public:
  HappensBefore(size_t actors, size_t memories) : clocks(actors, Clock(actors)), memories(memories) {}

  /// Orders the actor's next operation after everything in `clock`.
  void await(size_t actor, const Clock &clock);
  void begin(size_t actor) { current = actor; }
  /// Records an access of the operation that began last. Compares all pairs of accesses of two actors to one byte, at
  /// least one of them a write.
  void access(size_t memory, int64_t offset, int64_t bytes, bool writes);
  /// Ends that operation. Returns the actor's clock after it.
  const Clock &end();
  const Clock &clockOf(size_t actor) const { return clocks[actor]; }

  /// True if two accesses to one byte may occur in either order.
  bool hasRace() const { return raceSeen; }

private:
  struct Access {
    int64_t begin, end;
    size_t actor;
    uint32_t operation; ///< of the actor, counted from 1
    bool writes;
  };
  /// The accesses to one block so far. Long buffers span many blocks.
  using Block = std::vector<Access>;
  static constexpr int64_t blockBytes = 4096;
  void accessIn(Block &block, const Access &access);
  bool isOrdered(const Access &earlier) const;

  std::vector<Clock> clocks;
  std::vector<std::unordered_map<int64_t, Block>> memories;
  size_t current = 0;
  bool raceSeen = false;
};

} // namespace fsdpc::mutation
