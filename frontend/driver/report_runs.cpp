#include "frontend/driver/report_runs.h"

#include "frontend/output/installation.h"
#include "frontend/output/output_folder.h"
#include "frontend/report/run_report.h"
#include "ir/usage_error.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include <set>

namespace fsdpc {

namespace {

/// The names of the files, without folder and ending where that tells them apart.
std::vector<std::string> namesOf(llvm::ArrayRef<std::string> paths) {
  std::vector<std::string> names;
  for (const std::string &path : paths)
    names.push_back(llvm::sys::path::stem(path).str());
  const bool areDistinct = std::set<std::string>(names.begin(), names.end()).size() == names.size();
  return areDistinct ? names : std::vector<std::string>(paths.begin(), paths.end());
}

} // namespace

llvm::Error reportRuns(const OptionValues &values) {
  const llvm::ArrayRef<std::string> paths = llvm::ArrayRef(values.positional()).drop_front();
  if (paths.empty())
    return llvm::make_error<UsageError>("logs are missing: fsdpc report LOG.jsonl... -o report.html");
  std::vector<LogText> logs;
  for (const auto &[path, name] : llvm::zip_equal(paths, namesOf(paths))) {
    auto text = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
    if (!text)
      return llvm::createStringError(text.getError(), path + ": " + text.getError().message());
    if (bool isSame = false; !llvm::sys::fs::equivalent(values.text("output"), path, isSame) && isSame)
      return llvm::make_error<UsageError>("-o " + values.text("output").str() + ": is a log and would be overwritten");
    logs.push_back({name, (*text)->getBuffer().str()});
  }
  llvm::Expected<const Installation &> own = installation();
  if (!own)
    return own.takeError();
  llvm::Expected<std::string> page = runReport(logs, own->resources);
  return page ? writeText(values.text("output"), *page) : page.takeError();
}

} // namespace fsdpc
