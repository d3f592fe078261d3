// OUT/: the emitted program, what it needs to be built elsewhere, its weights, its plan, its stages.
#pragma once

#include "frontend/driver/compile.h"
#include "frontend/report/schedule_page.h"

namespace fsdpc {

/// Requires a compilation at stage planned. Writes nothing into OUT unless everything succeeded. Prints the decisions.
llvm::Error writeBundle(const Compilation &compilation, const OptionValues &values, llvm::StringRef input);

/// The options of the schedule page of a compilation at stage planned.
SchedulePageOptions schedulePageOptions(const Compilation &compilation, const OptionValues &values,
                                        llvm::StringRef resources);

} // namespace fsdpc
