// Logs of runs as one page.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace fsdpc {

/// The data of the page, lines of JSON. `text`: of a log, copied line by line. Before each log is a line with its name,
///   {"run": name}
/// which in a page that a program writes (runtime/common/run_page.h) also has
///   state       "running", "finished" or "ended"
///   why         it ended before that: the message
///   written_ms  when, since 1970
///   every       of the lines with a step one of so many is in the page
/// A last line that is not complete is left out: the run may still write it. So is one before the settings of a run
/// that goes on: it was killed in it. Any other line that is not JSON is an error that names the log and the line.
struct LogText {
  std::string name, text;
};
llvm::Expected<std::string> runReportLines(llvm::ArrayRef<LogText> logs);

/// A page without references to other files: curves of all runs side by side, where the time of a step goes, what their
/// settings differ in, the last figures of each. `resources`: Installation::resources.
llvm::Expected<std::string> runReport(llvm::ArrayRef<LogText> logs, llvm::StringRef resources);

/// OUT/run_page.html, the page without data: programs put theirs in place of the word RUNS.
llvm::Expected<std::string> runReportFrame(llvm::StringRef resources);

} // namespace fsdpc
