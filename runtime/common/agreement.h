// Ranks that agree before they begin, and that fail together.
#pragma once

#include "runtime/common/options.h"
#include "runtime/common/platform.h"

#include <functional>

namespace fsdpc::rt {

/// Collective. Runs `work`, which must not call collectives. If it threw a Failure anywhere, every rank throws one with
/// `everyRank`: that of the lowest failing rank, which is the one to speak (elsewhere only the code and the rank are
/// known).
void agreed(Platform &platform, const std::function<void()> &work);

/// Collective. Compares the ranks' plans and executables with rank 0's; the first difference is a Failure{disagreement}
/// on every rank, rank 0's naming the other rank and both sides, with the details `differs=plan|binary other=<rank>`.
/// The first exchange of a run: it works between programs of whatever plan. `executable`: the file of this program.
void requireSameProgram(Platform &platform, const ProgramInfo &program, const std::string &executable);

/// Collective, between equal programs. The same for the resolved options: `differs=options other=<rank>`, the message
/// lists the options that differ with both values.
void requireSameOptions(Platform &platform, const Options &options);

/// Collective, with --debug_collectives detail after the last step. Compares the collectives that the ranks' traces
/// still hold: that they are the same ones, and that results which ranks have in common have the same bits. The details
/// of the failure: those of the collective, and `other=<rank>`.
void requireSameTraces(Platform &platform, Pulse &pulse);

} // namespace fsdpc::rt
