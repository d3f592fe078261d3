// comm_traces/rank_N.json (schema fsdpc.comm_trace/1): what this rank saw when the run ended by a time-out or a
// disagreement, or at its end with --debug_collectives detail.
#pragma once

#include "runtime/common/failure.h"
#include "runtime/common/heartbeat.h"

#include <string>

namespace fsdpc::rt {

/// Writes the file in the folder comm_traces of the working directory, under its name only when it is complete.
/// `failure`: why the run ends, as far as this rank knows; null: it is complete. Returns false where that is not
/// possible. Allocates nothing large: it may run inside a step.
bool writeTraceFile(Pulse &pulse, const Failure *failure);

/// "comm_traces/rank_3.json"
std::string traceFileName(int rank);

} // namespace fsdpc::rt
