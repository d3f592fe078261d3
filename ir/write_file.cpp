#include "ir/write_file.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc {

namespace {

llvm::Error fault(llvm::StringRef path, std::error_code code) {
  return llvm::createStringError(path + ": " + llvm::Twine(code.message()));
}

llvm::Error writeAndClose(llvm::raw_fd_ostream &out, llvm::StringRef path, llvm::StringRef text) {
  out << text;
  out.close();
  if (!out.has_error())
    return llvm::Error::success();
  const std::error_code code = out.error();
  out.clear_error(); // a stream with an unchecked error aborts the process
  return fault(path, code);
}

} // namespace

llvm::Error writeFile(llvm::StringRef path, llvm::StringRef text) {
  std::error_code code;
  llvm::raw_fd_ostream out(path, code);
  return code ? fault(path, code) : writeAndClose(out, path, text);
}

llvm::Error writeFile(int descriptor, llvm::StringRef path, llvm::StringRef text) {
  llvm::raw_fd_ostream out(descriptor, /*shouldClose=*/true);
  return writeAndClose(out, path, text);
}

llvm::Error replaceFile(llvm::StringRef path, llvm::StringRef text) {
  const llvm::StringRef folder = llvm::sys::path::parent_path(path);
  if (std::error_code code = folder.empty() ? std::error_code() : llvm::sys::fs::create_directories(folder))
    return fault(folder, code);
  llvm::Error error = llvm::writeToOutput(path, [&](llvm::raw_ostream &out) {
    out << text;
    return llvm::Error::success();
  });
  return error ? llvm::createStringError(path + ": " + toString(std::move(error))) : llvm::Error::success();
}

} // namespace fsdpc
