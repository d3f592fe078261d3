// The table of --memory_report: planned bytes per class, and planned, used and mapped bytes of the arenas; what is
// measured beside the plan; after training, what the ranks hold in memory.
#pragma once

#include "runtime/common/job.h"

#include <string>

namespace fsdpc::rt {

/// All arenas of one rank: the plan's total_bytes.
std::int64_t plannedBytes(const ProgramInfo &program);

/// Collective: measures what the ranks hold beside the plan (Platform::outsidePlan), the maximum over them, as a line
/// of the log and, with --memory_report, of stdout. `when`: "start_up", "first_step".
void reportOutsidePlan(const Job &job, const char *when);

/// `mappedBytes`: what the ranks mapped for their arenas, maximum over ranks.
std::string memoryReport(const ProgramInfo &program, std::int64_t mappedBytes);

/// `growthBytes`: Platform::proportionalSetGrowthBytes summed over ranks; negative if some rank's system does not tell.
std::string growthReport(const ProgramInfo &program, std::int64_t growthBytes);

} // namespace fsdpc::rt
