// Which accesses to memory are ordered in every run of a program whose actors order each other in the same way each
// time: found in one run, with a vector clock per actor. An actor does one thing after another.
#pragma once

#include "ir/node.h"
#include <string>
#include <unordered_map>
#include <vector>

namespace fsdpc::mutation {

/// By actor, how many of its operations have certainly ended.
using Clock = std::vector<uint32_t>;

class HappensBefore {
public:
  HappensBefore(size_t actors, size_t memories) : clocks(actors, Clock(actors)), memories(memories) {}

  /// The actor's next operation is behind what `clock` knows.
  void await(size_t actor, const Clock &clock);
  void begin(size_t actor) { current = actor; }
  /// By the operation that began last. Every two accesses of two actors to one byte, of which one writes, are compared.
  void access(size_t memory, int64_t offset, int64_t bytes, bool writes);
  /// What is known when that operation has ended.
  const Clock &end();
  const Clock &clockOf(size_t actor) const { return clocks[actor]; }

  /// Two accesses to one byte that may come in either order were seen.
  bool hasRace() const { return raceSeen; }

private:
  struct Access {
    int64_t begin, end;
    size_t actor;
    uint32_t operation; ///< of the actor, counted from 1
    bool writes;
  };
  /// Long buffers lie in many blocks, each with the accesses to it so far.
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
