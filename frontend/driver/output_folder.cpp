#include "frontend/driver/output_folder.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc {

namespace {

llvm::Error fileError(llvm::StringRef path, std::error_code code) {
  return llvm::createStringError(path + ": " + llvm::Twine(code.message()));
}

} // namespace

llvm::Expected<OutputFolder> OutputFolder::create(llvm::StringRef path) {
  llvm::SmallString<128> target(path);
  while (target.size() > 1 && target.back() == '/')
    target.pop_back();
  if (std::error_code code = llvm::sys::fs::make_absolute(target))
    return fileError(path, code);
  if (llvm::sys::fs::exists(target) && !llvm::sys::fs::is_directory(target))
    return llvm::createStringError(path + ": exists and is not a folder");
  std::string working = (target + ".partial-" + llvm::Twine(llvm::sys::Process::getProcessId())).str();
  if (std::error_code code = llvm::sys::fs::create_directories(working))
    return fileError(working, code);
  return OutputFolder(target.str().str(), working);
}

OutputFolder::OutputFolder(OutputFolder &&other) : target(std::move(other.target)), working(std::move(other.working)) {
  other.working.clear();
}

OutputFolder::~OutputFolder() {
  if (!working.empty())
    llvm::sys::fs::remove_directories(working);
}

llvm::Expected<std::string> OutputFolder::pathOf(llvm::StringRef name) const {
  llvm::SmallString<128> path(working);
  llvm::sys::path::append(path, name);
  if (std::error_code code = llvm::sys::fs::create_directories(llvm::sys::path::parent_path(path)))
    return fileError(path, code);
  return path.str().str();
}

llvm::Error OutputFolder::write(llvm::StringRef name, llvm::StringRef text) {
  llvm::Expected<std::string> path = pathOf(name);
  if (!path)
    return path.takeError();
  std::error_code code;
  llvm::raw_fd_ostream out(*path, code);
  if (code)
    return fileError(*path, code);
  out << text;
  out.close();
  if (out.has_error()) {
    code = out.error();
    out.clear_error();
    return fileError(*path, code);
  }
  return llvm::Error::success();
}

llvm::Error OutputFolder::copyFrom(llvm::StringRef sourceTree, llvm::StringRef relativePath) {
  llvm::Expected<std::string> path = pathOf(relativePath);
  if (!path)
    return path.takeError();
  llvm::SmallString<128> source(sourceTree);
  llvm::sys::path::append(source, relativePath);
  if (std::error_code code = llvm::sys::fs::copy_file(source, *path))
    return fileError(source, code);
  return llvm::Error::success();
}

llvm::Error OutputFolder::commit() {
  if (!llvm::sys::fs::exists(target)) {
    if (std::error_code code = llvm::sys::fs::rename(working, target))
      return fileError(target, code);
    working.clear();
    return llvm::Error::success();
  }
  std::error_code code;
  for (llvm::sys::fs::directory_iterator entry(working, code), end; entry != end && !code; entry.increment(code)) {
    llvm::SmallString<128> to(target);
    llvm::sys::path::append(to, llvm::sys::path::filename(entry->path()));
    if (llvm::sys::fs::is_directory(to))
      llvm::sys::fs::remove_directories(to);
    if (std::error_code failed = llvm::sys::fs::rename(entry->path(), to))
      return fileError(to, failed);
  }
  return code ? fileError(working, code) : llvm::Error::success();
}

llvm::Error writeText(llvm::StringRef path, llvm::StringRef text) {
  if (path.empty() || path == "-") {
    llvm::outs() << text;
    return llvm::Error::success();
  }
  std::error_code code;
  llvm::raw_fd_ostream out(path, code);
  if (code)
    return llvm::createStringError(path + ": " + llvm::Twine(code.message()));
  out << text;
  return llvm::Error::success();
}

} // namespace fsdpc
