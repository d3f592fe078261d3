// Agreement between ranks: they compare program and options before they start, and fail together.
#pragma once

#include "runtime/common/options.h"
#include "runtime/common/platform.h"

#include <functional>

namespace fsdpc::rt {

/// Collective. Runs `work`, which must not call collectives. If `work` throws a Failure on any rank, every rank throws
/// a Failure with `everyRank` set. It is that of the lowest failing rank, which prints the message. The other ranks
/// know only its code and rank.
void agreed(Platform &platform, const std::function<void()> &work);

/// Collective. Compares the plan and executable of every rank with those of rank 0. The first difference becomes a
/// Failure{disagreement} on every rank, with the details `differs=plan|binary other=<rank>`. The message of rank 0
/// names the other rank and both sides. This is the first exchange of a run, so it works between programs of any two
/// plans. `executable`: the file of this program.
void requireSameProgram(Platform &platform, const ProgramInfo &program, const std::string &executable);

/// Collective, between equal programs. Compares the resolved options in the same way: `differs=options other=<rank>`.
/// The message lists the options that differ, with both values.
void requireSameOptions(Platform &platform, const Options &options);

/// Collective, called after the last step with --debug_collectives detail. Compares the collectives that are still in
/// the ranks' traces: they must be the same ones, and results that ranks have in common must be bitwise identical. The
/// details of the failure are those of the collective and `other=<rank>`.
void requireSameTraces(Platform &platform, Pulse &pulse);

} // namespace fsdpc::rt
