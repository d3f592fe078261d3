// The collectives an emitted program calls, and the order between streams.
//
// A start enqueues an NCCL call on the stream of its channel, straight from the operand's place to the result's;
// `await` before it makes that stream wait for compute, `wait` makes compute wait for the collective. The host waits
// for neither. When a collective has ended on a rank's stream, NCCL reads this rank's operand no more, so its memory is
// free for compute behind the wait (ir/README.md, R3).
#pragma once

#include "runtime/common/address.h"
#include "runtime/cuda/device.h"

#include <span>

namespace fsdpc::rt {

/// A started collective. It stays outstanding until it is waited for, also from one step to the next.
struct Ticket {
  std::uint64_t sequence = 0; ///< 0: not started yet
  int collective = 0;
};

/// Gathers `shardBytes` from every member's `source` into `destination`[members x shardBytes], in member order.
Ticket allGatherStart(Context &context, int collective, Place source, void *destination, std::int64_t shardBytes);

/// Sums `source`[members x shardElements] over the group; member m keeps slice m in `destination`. Without `staging` in
/// NCCL's order, which may change with its version and the number of nodes; with it (members x shardElements) in that
/// of tree_sum.h: the parts are exchanged, and summed here.
Ticket reduceScatterStart(Context &context, int collective, Place source, void *destination, std::int64_t shardElements,
                          DType dtype, void *staging);

/// Sums `source`[elements] over the group into `destination` on every member. `staging`: members x elements, or null.
Ticket allReduceStart(Context &context, int collective, Place source, void *destination, std::int64_t elements,
                      DType dtype, void *staging);

/// Compute goes on when the collective has ended; at once if all streams were joined since its start.
void wait(Context &context, Ticket ticket);
/// Waits for it if it was started, and forgets it: it is as before the first step.
void discard(Context &context, Ticket &ticket);

/// Once, in start().
void createEvents(const Context &context, std::span<Event> events);
/// The event is the end of what compute was given so far.
void record(const Context &context, Event &event);
/// What the channel is given from now on runs behind the event; behind nothing if it was never recorded.
void await(const Context &context, Channel channel, const Event &event);
/// Every stream goes on when all have done what they were given so far.
void joinStreams(const Context &context);
/// The halves of that: the channels go on when compute has, or compute when the channels have.
void forkChannels(const Context &context);
void returnChannels(const Context &context);

} // namespace fsdpc::rt
