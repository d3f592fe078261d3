#include "frontend/report/run_report.h"

#include "frontend/report/page_parts.h"
#include "ir/read_json.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc {

namespace {

namespace json = llvm::json;

/// Appends the lines of a log. A run that was killed may have left a part of a line: at the end, or before the settings
/// of the run that went on.
llvm::Error appendLines(const LogText &log, std::string &data) {
  llvm::StringRef rest = log.text;
  for (size_t number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    const llvm::StringRef text = rest.take_front(end);
    rest = end == llvm::StringRef::npos ? "" : rest.drop_front(end + 1);
    llvm::Expected<json::Value> line = readJson(text);
    if (line && line->getAsObject())
      (data += text) += '\n';
    else if (!line && (end == llvm::StringRef::npos || rest.starts_with("{\"settings\":")))
      llvm::consumeError(line.takeError());
    else
      return llvm::createStringError(log.name + ": line " + std::to_string(number) + " is no line of a log" +
                                     (line ? "" : ": " + toString(line.takeError())));
  }
  return llvm::Error::success();
}

llvm::Expected<std::string> pageWith(std::string data, llvm::StringRef resources) {
  return assemblePage(resources, "run_page", {"style.css", "log.js", "page.js"}, {{"RUNS", std::move(data)}});
}

} // namespace

llvm::Expected<std::string> runReportLines(llvm::ArrayRef<LogText> logs) {
  std::string data;
  for (const LogText &log : logs) {
    llvm::raw_string_ostream(data) << json::Value(json::Object{{"run", json::fixUTF8(log.name)}}) << '\n';
    if (llvm::Error error = appendLines(log, data))
      return error;
  }
  return data;
}

llvm::Expected<std::string> runReport(llvm::ArrayRef<LogText> logs, llvm::StringRef resources) {
  llvm::Expected<std::string> data = runReportLines(logs);
  return data ? pageWith(std::move(*data), resources) : data.takeError();
}

llvm::Expected<std::string> runReportFrame(llvm::StringRef resources) { return pageWith("RUNS", resources); }

} // namespace fsdpc
