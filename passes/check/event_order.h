// The order of operations on a device with streams and events, derived only from what the device receives: `records`,
// `awaits` and waits that are not implied.
//
// There are four queues: the compute stream and three transfer streams. Each runs its operations in order of
// enqueueing. Other ordering is only from:
//   - a start that awaits an event begins after everything that the compute stream knew or had run when the event was
//     last recorded. An event that was never recorded delays nothing;
//   - a wait that is executed blocks the compute stream until the transfer has ended, and everything ordered before it;
//   - a tap blocks the host, and everything that it enqueues later, until the compute stream has reached it;
//   - standalone functions, and all functions of a step of several micro-steps, begin and end with all streams joined.
// Inputs are fed, and results that no function uses are fetched, on the compute stream. Host compute is enqueued there
// too. Ordering between ranks is not checked: a collective has ended for a rank when its own stream is past it.
#pragma once

#include "ir/module.h"
#include "llvm/Support/Error.h"

namespace fsdpc::check {

/// Checks that every two accesses to one byte are ordered if one of them writes: over all functions, in two consecutive
/// steps of each kind, including the first step. (S1) for a read before the data is available, (S5) for an early
/// overwrite. Time n log n in the nodes.
llvm::Error checkEvents(const Module &planned);

} // namespace fsdpc::check
