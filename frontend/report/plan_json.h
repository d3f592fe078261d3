// OUT/plan.json (schema fsdpc.plan/1) with the predicted timeline.
#pragma once

#include "ir/module.h"
#include "passes/cost/timeline.h"
#include "passes/plan/memory_report.h"

namespace fsdpc {

std::string planJson(const Module &planned, const MemoryReport &memory, const Timeline &timeline);

} // namespace fsdpc
