// The operations that have certainly ended when a node runs: the order between the streams, and nothing more.
//
// The compute stream is the program order of all nodes that start nothing, including host compute. The other streams
// run the transfers started on them one after another, in program order, independently of each other. A copy between
// the device and its host is modelled as a collective of one rank. A collective begins after its operands are computed,
// after its `after` tokens, and after the function was entered. It does not wait for other compute nodes, even if they
// are earlier in the program.
//
// A compute node learns about a collective only through waits. There are two separate facts:
//   - it has ended on this rank: its result is available, its scratch is free. The wait for it implies that, and so
//     does the wait for any later one on its stream, which is a FIFO;
//   - it is released: no rank of its group reads this rank's operand any more. A later wait implies that only if that
//     collective's groups contain all ranks of this one's: the others may lag behind.
#pragma once

#include "passes/check/rank_group.h"
#include "llvm/ADT/SmallVector.h"
#include <array>
#include <cstdint>
#include <vector>

namespace fsdpc::check {

/// A position on the compute stream, increasing. Counting continues over all functions of a step.
using Moment = int64_t;
/// Index of a started collective, in order of issue over a step; -1: none.
using CollectiveIndex = int64_t;

/// Per transfer stream, the last collective that is known to have ended.
struct EndedCollectives {
  std::array<CollectiveIndex, 3> last = {-1, -1, -1}; ///< by transferStreams

  CollectiveIndex &on(Stream stream) { return last[laneOf(stream)]; }
  CollectiveIndex on(Stream stream) const { return last[laneOf(stream)]; }
  void join(const EndedCollectives &other) {
    for (size_t i = 0; i < last.size(); ++i)
      last[i] = std::max(last[i], other.last[i]);
  }
};

class StreamClocks {
public:
  /// Functions follow each other: everything after this point, on any stream, is ordered after all compute nodes so
  /// far.
  Moment enterFunction();
  /// The next compute node begins.
  Moment advance() { return ++current; }
  Moment now() const { return current; }

  /// A collective that begins after the compute node at `after` has ended, and after the collectives in `arrived`.
  CollectiveIndex startCollective(Stream stream, RankGroup group, Moment after, const EndedCollectives &arrived);
  /// Waits at the current moment.
  void waitFor(CollectiveIndex collective);
  /// The collectives known to have ended on a rank that has waited for this collective only.
  EndedCollectives endOf(CollectiveIndex collective) const;

  /// True if the collective has ended on this rank when the current compute node runs. True for -1.
  bool hasEnded(CollectiveIndex collective) const;
  /// True if no rank reads its operand any more when the compute node at `moment` runs.
  bool isReleased(CollectiveIndex collective, Moment moment) const;
  /// True if the compute node at `moment` has ended when the collective begins.
  bool begunAfter(CollectiveIndex collective, Moment moment) const { return started[collective].after >= moment; }
  /// True if the earlier collective has ended on this rank when the later one begins.
  bool begunAfterEnd(CollectiveIndex later, CollectiveIndex earlier) const;
  Moment beginOf(CollectiveIndex collective) const { return started[collective].after; }
  /// True if the release of `later` implies that of `earlier`.
  bool releasesToo(CollectiveIndex later, CollectiveIndex earlier) const;

private:
  struct Started {
    Stream stream;
    RankGroup group;
    Moment after = 0;       ///< the latest moment that its stream has waited for when it begins
    EndedCollectives ended; ///< the collectives that have ended when it begins
  };
  struct Wait {
    Moment moment;
    CollectiveIndex collective; ///< the last one of its stream and group so far
  };
  /// Waits for collectives of one stream and group, by moment.
  struct Waits {
    Stream stream;
    RankGroup group;
    std::vector<Wait> waits;
    CollectiveIndex lastAt(Moment moment) const;
  };
  EndedCollectives endedAt(Moment moment) const;

  Moment current = 0;
  std::array<Moment, 3> seen = {};         ///< per stream: the latest moment it has waited for
  std::array<EndedCollectives, 3> arrived; ///< per stream: the collectives it has waited for
  std::vector<Started> started;
  llvm::SmallVector<Waits, 4> waits;
};

} // namespace fsdpc::check
