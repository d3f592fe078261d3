// The table of --memory_report: planned bytes per class, and planned, used and mapped bytes of the arenas; after
// training, what the ranks hold in memory.
#pragma once

#include "runtime/common/program.h"

#include <string>

namespace fsdpc::rt {

/// All arenas of one rank: the plan's total_bytes.
std::int64_t plannedBytes(const ProgramInfo &program);

/// `mappedBytes`: what the ranks mapped for their arenas, maximum over ranks.
std::string memoryReport(const ProgramInfo &program, std::int64_t mappedBytes);

/// `growthBytes`: Platform::proportionalSetGrowthBytes summed over ranks; negative if some rank's system does not tell.
std::string growthReport(const ProgramInfo &program, std::int64_t growthBytes);

} // namespace fsdpc::rt
