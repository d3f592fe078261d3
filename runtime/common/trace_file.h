// comm_traces/rank_N.json (schema fsdpc.comm_trace/1): the state of this rank when the run ended by a time-out or a
// disagreement, or at the end of a run with --debug_collectives detail.
#pragma once

#include "runtime/common/failure.h"
#include "runtime/common/heartbeat.h"

#include <string>

namespace fsdpc::rt {

/// Writes the file in the folder comm_traces of the working directory. It appears under its name only when complete.
/// `failure`: why the run ends, as far as this rank knows; null: the run is complete. Returns false on error. Allocates
/// nothing large, because it may run inside a step.
bool writeTraceFile(Pulse &pulse, const Failure *failure);

/// "comm_traces/rank_3.json"
std::string traceFileName(int rank);

} // namespace fsdpc::rt
