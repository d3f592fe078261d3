// The predicted timeline as text: `fsdpc simulate`, `--schedule_format`, `--remarks schedule`, `--opt_report`.
#pragma once

#include "passes/cost/timeline.h"

namespace fsdpc {

/// `format` is a value of --schedule_format: text (a table per function), json (fsdpc.schedule/1), csv (a line per
/// node and collective), chrome (a trace for chrome://tracing and Perfetto: the functions of one step).
std::string scheduleText(const Module &planned, const Timeline &timeline, llvm::StringRef format);

/// One line per collective of a training step, in order.
std::vector<std::string> scheduleRemarks(const Timeline &timeline);

/// fsdpc.opt_report/1: `remarks` of all kinds, and for every collective the decisions and their reasons.
std::string optReport(const Module &planned, const Timeline &timeline, llvm::ArrayRef<std::string> remarks);

} // namespace fsdpc
