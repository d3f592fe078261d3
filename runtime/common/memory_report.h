// The table of --memory_report: planned bytes per class; planned, used and mapped bytes of the arenas; measured memory
// outside the plan; and, after training, the memory that the ranks hold.
#pragma once

#include "runtime/common/job.h"

#include <string>

namespace fsdpc::rt {

/// All arenas of one rank: the plan's total_bytes.
std::int64_t plannedBytes(const ProgramInfo &program);

/// Collective. Measures the memory of the ranks outside the plan (Platform::outsidePlan) and reports the maximum over
/// ranks in the log and, with --memory_report, on stdout. `when`: "start_up", "first_step". `stagingBytes`: mapped for
/// the copy of a checkpoint, which is planned too.
void reportOutsidePlan(const Job &job, const char *when, std::int64_t stagingBytes);

/// `mappedBytes`: the bytes that a rank mapped for its arenas, maximum over ranks.
std::string memoryReport(const ProgramInfo &program, std::int64_t mappedBytes);

/// `growthBytes`: Platform::proportionalSetGrowthBytes summed over ranks; negative if unknown on some rank.
std::string growthReport(const ProgramInfo &program, std::int64_t growthBytes);

} // namespace fsdpc::rt
