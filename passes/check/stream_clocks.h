// What has certainly happened when a node runs: the order between the two streams, and nothing more.
//
// The compute stream is the program order of all nodes that start no collective. The comm stream runs the started
// collectives one after another, in program order. A collective begins after its operands are made, after its `after`
// tokens, and after the function was entered; it does not wait for other compute nodes, however far up they stand in
// the program. A compute node knows of a collective only through a wait: of the one waited for and, because the stream
// is a FIFO on every rank, of those before.
#pragma once

#include <cstdint>
#include <vector>

namespace fsdpc::check {

/// A position on the compute stream; later ones are larger. Those of all functions of a step count on.
using Moment = int64_t;
/// Index of a started collective, in order of issue over a step.
using CollectiveIndex = int64_t;

class StreamClocks {
public:
  /// Functions follow each other: what comes next, on either stream, sees all compute nodes so far.
  Moment enterFunction() { return seenByComm = advance(); }
  /// The next compute node begins.
  Moment advance() { return ++current; }
  Moment now() const { return current; }

  /// A collective that begins after the compute node at `after` has ended.
  CollectiveIndex startCollective(Moment after);
  /// At the current moment.
  void waitFor(CollectiveIndex collective);

  /// Has the collective ended, on all ranks, when the current compute node runs?
  bool hasEnded(CollectiveIndex collective) const { return collective <= ended; }
  /// Has the compute node at `moment` ended when the collective begins?
  bool begunAfter(CollectiveIndex collective, Moment moment) const { return seen[collective] >= moment; }

private:
  Moment current = 0;
  Moment seenByComm = 0;      ///< the latest moment that the comm stream has waited for
  CollectiveIndex ended = -1; ///< the last collective that the compute stream has waited for
  std::vector<Moment> seen;   ///< per collective: seenByComm when it begins
};

} // namespace fsdpc::check
