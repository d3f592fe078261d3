// The collectives that an emitted program calls, and the meaning of their completion.
//
// Each collective is started and waited for. `wait` returns when (a) this rank's result is complete AND (b) no rank
// reads this rank's operand any more, so the memory of the operand may be reused immediately (ir/README.md, R3). Sums
// over ranks are one balanced binary tree in rank order, ((r0+r1)+(r2+r3))+..., in every transport and collective. So a
// result is bitwise identical on every rank, in every run, on every transport.
//
// A collective runs among the ranks of one group. Its entry in the side table gives the mesh axis. All groups of the
// axis run it at the same time, and members are numbered in rank order.
//
// Ranks of one host read each other's `window` arena directly. If a group's ranks live on several hosts, which the
// program finds out when it starts, MPI carries between hosts what those hosts have added in the same tree.
#pragma once

#include "runtime/common/program.h"

namespace fsdpc::rt {

/// A started collective. Trivially copyable. It stays outstanding until it is waited for, possibly by a later function
/// of the program or in a later step. Waiting for it again returns immediately. The same collective is not started
/// again before that.
struct Ticket {
  std::uint64_t sequence = 0; ///< 0: not started yet
  int collective = 0;
};

/// Waits for the collective if it was started, and resets the ticket to its state before the first step.
void discard(Context &context, Ticket &ticket);

/// Gathers `shardBytes` from every member's `source` (in the window) into `destination`[members x shardBytes], in
/// member order.
Ticket allGatherStart(Context &context, int collective, Place source, void *destination, std::int64_t shardBytes);

/// Sums `source`[members x shardElements] (in the window) over the group; member m stores slice m in `destination`.
Ticket reduceScatterStart(Context &context, int collective, Place source, void *destination, std::int64_t shardElements,
                          DType dtype);

/// Sums `source`[elements] (in the window) over the group into `destination` on every member.
Ticket allReduceStart(Context &context, int collective, Place source, void *destination, std::int64_t elements,
                      DType dtype);

void wait(Context &context, Ticket ticket);

} // namespace fsdpc::rt
