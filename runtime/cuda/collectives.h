// The collectives an emitted program calls, and the order between streams.
//
// A start enqueues an NCCL call on the stream of its channel, directly from the operand's address to the result's.
// `await` before it makes that stream wait for compute, and `wait` makes compute wait for the collective. The host
// waits for neither. When a collective has ended on a rank's stream, NCCL no longer reads this rank's operand, so
// compute may reuse its memory after the wait (ir/README.md, R3).
#pragma once

#include "runtime/common/address.h"
#include "runtime/cuda/device.h"

#include <span>

namespace fsdpc::rt {

/// A started collective. It is outstanding until it is waited for, possibly across steps.
struct Ticket {
  std::uint64_t sequence = 0; ///< 0: not started yet
  int collective = 0;
};

/// Gathers `shardBytes` from every member's `source` into `destination`[members x shardBytes], in member order.
Ticket allGatherStart(Context &context, int collective, Place source, void *destination, std::int64_t shardBytes);

/// Sums `source`[members x shardElements] over the group; member m keeps slice m in `destination`. Without `staging`,
/// in NCCL's order, which may change with its version and the number of nodes. With `staging` (members x
/// shardElements), in the order of tree_sum.h: the members exchange their slices and sum them here.
Ticket reduceScatterStart(Context &context, int collective, Place source, void *destination, std::int64_t shardElements,
                          DType dtype, void *staging = nullptr);

/// Sums `source`[elements] over the group into `destination` on every member. `staging`: members x elements, or null.
Ticket allReduceStart(Context &context, int collective, Place source, void *destination, std::int64_t elements,
                      DType dtype, void *staging = nullptr);

/// Makes compute wait for the collective. No wait is needed if all streams were joined since its start.
void wait(Context &context, Ticket ticket);
/// Waits for the collective if it was started, and resets the ticket to its state before the first step.
void discard(Context &context, Ticket &ticket);

/// Called once, in start().
void createEvents(const Context &context, std::span<Event> events);
/// Records the end of the work enqueued on compute so far.
void record(const Context &context, Event &event);
/// Work enqueued on the channel from now on runs after the event. Waits for nothing if the event was never recorded.
void await(const Context &context, Channel channel, const Event &event);
/// Every stream waits for the work enqueued so far on all streams.
void joinStreams(const Context &context);
/// The two halves of joinStreams: the channels wait for compute, or compute waits for the channels.
void forkChannels(const Context &context);
void returnChannels(const Context &context);

} // namespace fsdpc::rt
