// The collectives an emitted program calls, and what their completion means.
//
// Each collective is started and waited for. `wait` returns when (a) this rank's result is complete AND (b) no rank
// reads this rank's operand any more, so the memory of the operand may be reused at once (design.md section 2, rule 3).
// Sums over ranks are one balanced binary tree in rank order, ((r0+r1)+(r2+r3))+..., in every transport and collective,
// so a result has the same bits on every rank, in every run, on every transport.
//
// Two transports: ranks of one host read each other's `window` arena directly; the plain MPI path (chosen at compile
// time, ProgramInfo::plainMpi) exchanges into planned staging and then sums locally in the same tree.
#pragma once

#include "runtime/common/program.h"

namespace fsdpc::rt {

/// One entry per collective of the program, in the side table: what a time-out or a trace names.
struct CollectiveInfo {
  const char *op;     ///< "all_gather", "reduce_scatter", "all_reduce"
  const char *unit;   ///< "" for scalars
  const char *name;   ///< id as in plan.json
  std::int64_t bytes; ///< of the full buffer
};

/// The side table; the `collective` argument below is an index of it. Defined by the emitted program; without that
/// (weak) definition messages name no unit.
std::span<const CollectiveInfo> programCollectives();

/// A started collective. Trivially copyable; valid until waited for, exactly once.
struct Ticket {
  std::uint64_t sequence = 0;
};

/// Gathers `shardBytes` from every rank's `source` (in the window) into `destination`[worldSize x shardBytes], rank
/// order.
Ticket allGatherStart(Context &context, int collective, Place source, void *destination, std::int64_t shardBytes);

/// Sums `source`[worldSize x shardElements] (in the window) over ranks; rank r keeps slice r in `destination`.
/// `staging`: worldSize x shardElements on the plain MPI path, null otherwise.
Ticket reduceScatterStart(Context &context, int collective, Place source, void *destination, std::int64_t shardElements,
                          DType dtype, void *staging);

/// Sums `source`[elements] (in the window) over ranks into `destination` on every rank.
/// `staging`: worldSize x elements on the plain MPI path, null otherwise.
Ticket allReduceStart(Context &context, int collective, Place source, void *destination, std::int64_t elements,
                      DType dtype, void *staging);

void wait(Context &context, Ticket ticket);

} // namespace fsdpc::rt
