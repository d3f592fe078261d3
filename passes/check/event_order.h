// What a device with streams and events may run at once, from what it is told alone: `records`, `awaits` and waits that
// are not implied.
//
// Four queues: the compute stream, and those of transfers. Each runs what is enqueued on it one after another and knows
// of the others only what it was told:
//   - a start that awaits an event begins after everything that the compute stream knew or had run when the event was
//     last recorded. An event that was never recorded holds nobody up;
//   - a wait that is carried out holds the compute stream until the transfer has ended; so does what that knew;
//   - a tap holds the host, and with it whatever it enqueues later, until the compute stream has come so far;
//   - functions that stand alone, and all of a step of several micro-steps, begin and end with all streams joined.
// Inputs are fed, and results that no function takes are fetched, on the compute stream. What the host computes is
// enqueued there too. Between ranks nothing is asked: a collective has ended for a rank when its own stream is past it.
#pragma once

#include "ir/module.h"
#include "llvm/Support/Error.h"

namespace fsdpc::check {

/// Every two accesses to one byte, of which one writes, are ordered: over all functions, in two steps of each kind that
/// follow each other, the first one included. (S1) for what is read before it is there, (S5) for what is overwritten
/// too early. Time n log n in the nodes.
llvm::Error checkEvents(const Module &planned);

} // namespace fsdpc::check
