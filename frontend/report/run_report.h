// Logs of runs as one page.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace fsdpc {

/// The data of the page, JSON of schema fsdpc.run_report/1: `runs`, each with
///   name        as given
///   settings    of the first line, flat: "options.lr", "world_size", ...
///   series      figure -> [[step, value] ...], of the lines that have a step
///   events      [step, text] ...: notes, checkpoints, skipped steps, stragglers
/// `text`: of a log, lines of JSON. A last line that is not complete is left out: the run may still write it. Any other
/// line that is not JSON is an error that names the log and the line.
struct LogText {
  std::string name, text;
};
llvm::Expected<std::string> runReportJson(llvm::ArrayRef<LogText> logs);

/// A page without references to other files: curves of all runs side by side, what their settings differ in, the last
/// figures of each. `resources`: Installation::resources.
llvm::Expected<std::string> runReport(llvm::ArrayRef<LogText> logs, llvm::StringRef resources);

} // namespace fsdpc
