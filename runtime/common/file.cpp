#include "runtime/common/file.h"

#include "runtime/common/disk_faults.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <glob.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdpc::rt {
namespace {

std::string systemMessage() { return std::strerror(errno); }

[[noreturn]] void storageFailure(const std::string &path, const std::string &what) {
  throw Failure(ExitCode::storage, path + ": " + what);
}

/// Reserves blocks, so that a full disk is detected before the work is done. File systems that cannot reserve blocks
/// get a sparse file.
void reserve(int descriptor, std::int64_t sizeBytes, const std::string &path) {
  if (sizeBytes == 0)
    return;
  const int error = posix_fallocate(descriptor, 0, sizeBytes);
  if (error == 0)
    return;
  if (error != EOPNOTSUPP && error != EINVAL)
    storageFailure(path,
                   std::string("cannot reserve ") + std::to_string(sizeBytes) + " bytes: " + std::strerror(error));
  if (::ftruncate(descriptor, sizeBytes) != 0)
    storageFailure(path, systemMessage());
}

/// Allows this process as many open files as it may allow itself: data sets have many. False if it cannot have more.
bool raiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
    return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

} // namespace

InputFile::InputFile(std::string path) : name(std::move(path)) {
  descriptor = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0 && errno == EMFILE && raiseFileLimit())
    descriptor = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    throw Failure(ExitCode::corrupt, name + ": cannot open: " + systemMessage());
  struct stat status{};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    throw Failure(ExitCode::corrupt, name + ": not a regular file");
  }
  size = status.st_size;
}

InputFile::InputFile(InputFile &&other) noexcept
    : name(std::move(other.name)), size(other.size), descriptor(other.descriptor) {
  other.descriptor = -1;
}

InputFile::~InputFile() {
  if (descriptor >= 0)
    ::close(descriptor);
}

void InputFile::read(std::int64_t offsetBytes, void *destination, std::int64_t bytes) const {
  auto *at = static_cast<std::byte *>(destination);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor, at, static_cast<std::size_t>(bytes), offsetBytes);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      throw Failure(ExitCode::corrupt,
                    name + ": cannot read at byte " + std::to_string(offsetBytes) + ": " + systemMessage());
    if (got == 0)
      throw Failure(ExitCode::corrupt, name + ": ends at byte " + std::to_string(offsetBytes) + ", " +
                                           std::to_string(bytes) + " more are needed");
    at += got;
    offsetBytes += got;
    bytes -= got;
  }
}

void InputFile::readAhead(std::int64_t offsetBytes, std::int64_t bytes) const {
  static_cast<void>(::posix_fadvise(descriptor, offsetBytes, bytes, POSIX_FADV_WILLNEED));
}

OutputFile::OutputFile(std::string path, std::int64_t sizeBytes, NameUntilCommit until) : name(std::move(path)) {
  temporaryName = name + ".tmp-" + std::to_string(::getpid());
  const DiskOperation operation("create");
  if (until == NameUntilCommit::none && !operation.fails())
    descriptor = ::open(parentDirectory(name).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  hasName = descriptor < 0;
  if (hasName)
    descriptor = operation.fails() ? -1 : ::open(temporaryName.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0)
    storageFailure(name, "cannot create: " + systemMessage());
  try {
    reserve(descriptor, sizeBytes, name);
  } catch (...) {
    close();
    throw;
  }
}

OutputFile::~OutputFile() {
  if (descriptor >= 0)
    close();
}

void OutputFile::close() {
  ::close(descriptor);
  if (hasName)
    ::unlink(temporaryName.c_str());
}

void OutputFile::write(std::int64_t offsetBytes, const void *source, std::int64_t bytes) {
  const auto *at = static_cast<const std::byte *>(source);
  const DiskOperation operation("write");
  while (bytes > 0) {
    const ssize_t put = operation.fails() ? -1 : ::pwrite(descriptor, at, static_cast<std::size_t>(bytes), offsetBytes);
    if (put < 0 && errno == EINTR)
      continue;
    if (put <= 0)
      storageFailure(name, "cannot write: " + systemMessage());
    at += put;
    offsetBytes += put;
    bytes -= put;
  }
}

/// A name can be given, but not replaced: hence the temporary one.
void OutputFile::giveName() {
  const std::string self = "/proc/self/fd/" + std::to_string(descriptor);
  ::unlink(temporaryName.c_str()); // of a process with this number that was killed
  if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, temporaryName.c_str(), AT_SYMLINK_FOLLOW) != 0)
    storageFailure(name, "cannot give the file a name: " + systemMessage());
  hasName = true;
}

void OutputFile::commit() {
  finishWriting();
  takeName();
}

void OutputFile::commitBoth(OutputFile &first, OutputFile &second) {
  first.finishWriting();
  second.finishWriting();
  first.takeName();
  second.takeName();
}

void OutputFile::finishWriting() {
  if (const DiskOperation operation("sync"); operation.fails() || ::fsync(descriptor) != 0)
    storageFailure(name, "cannot write: " + systemMessage());
  if (!hasName)
    giveName();
}

void OutputFile::takeName() {
  if (const DiskOperation operation("rename"); operation.fails() || ::rename(temporaryName.c_str(), name.c_str()) != 0)
    storageFailure(name, "cannot rename to this name: " + systemMessage());
  ::close(descriptor);
  descriptor = -1;
}

void makeFolders(const std::string &path) {
  const DiskOperation operation("create");
  std::error_code error;
  if (!operation.fails())
    std::filesystem::create_directories(path, error);
  if (operation.fails() || (error && !std::filesystem::is_directory(path)))
    storageFailure(path, "cannot create this folder: " + (error ? error.message() : systemMessage()));
}

void syncFolder(const std::string &path) {
  const DiskOperation operation("sync");
  const int folder = operation.fails() ? -1 : ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Some file systems cannot sync a folder, and keep its entries without it.
  const bool failed = folder < 0 || (::fsync(folder) != 0 && errno != EINVAL);
  const std::string why = failed ? systemMessage() : "";
  if (folder >= 0)
    ::close(folder);
  if (failed)
    storageFailure(path, "cannot write this folder: " + why);
}

void renameDurably(const std::string &from, const std::string &to) {
  if (const DiskOperation operation("rename"); operation.fails() || ::rename(from.c_str(), to.c_str()) != 0)
    storageFailure(from, "cannot rename to " + to + ": " + systemMessage());
  syncFolder(parentDirectory(to));
}

void removeFolder(const std::string &path) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    removeFile(entry->path().string());
  if (const DiskOperation operation("remove"); operation.fails() || (::rmdir(path.c_str()) != 0 && errno != ENOENT))
    storageFailure(path, "cannot delete: " + systemMessage());
}

void removeFile(const std::string &path) {
  if (const DiskOperation operation("remove"); operation.fails() || (::unlink(path.c_str()) != 0 && errno != ENOENT))
    storageFailure(path, "cannot delete: " + systemMessage());
}

void writeFile(const std::string &path, std::string_view text) {
  OutputFile file(path, static_cast<std::int64_t>(text.size()));
  file.write(0, text.data(), static_cast<std::int64_t>(text.size()));
  file.commit();
}

std::string readFile(const std::string &path) {
  const InputFile file(path);
  std::string text(static_cast<std::size_t>(file.sizeBytes()), '\0');
  file.read(0, text.data(), file.sizeBytes());
  return text;
}

std::vector<std::string> expandGlob(const std::string &pattern) {
  if (pattern.find_first_of("*?[") == std::string::npos || fileExists(pattern)) {
    if (std::error_code ignored; std::filesystem::is_directory(pattern, ignored))
      throw Failure(ExitCode::corrupt, pattern + ": is a folder; name its files, such as '" + pattern + "/*'");
    if (!fileExists(pattern))
      throw Failure(ExitCode::corrupt, pattern + ": no such file");
    return {pattern};
  }
  glob_t matches{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &matches) == 0)
    for (std::size_t i = 0; i < matches.gl_pathc; ++i)
      if (fileExists(matches.gl_pathv[i]))
        paths.emplace_back(matches.gl_pathv[i]);
  ::globfree(&matches);
  if (paths.empty())
    throw Failure(ExitCode::corrupt, pattern + ": no file matches");
  return paths;
}

std::string executableDirectory() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0 || length == static_cast<ssize_t>(sizeof path))
    throw Failure(ExitCode::internal, "cannot find the folder of this program");
  return parentDirectory(std::string(path, static_cast<std::size_t>(length)));
}

bool fileExists(const std::string &path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool folderExists(const std::string &path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string parentDirectory(const std::string &path) {
  const auto slash = path.find_last_of('/');
  if (slash == std::string::npos)
    return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void requireWritable(const std::string &path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
    storageFailure(path, "is a directory");
  const std::string folder = parentDirectory(path);
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    storageFailure(path, "cannot create a file in " + folder + ": " + systemMessage());
}

bool endsWith(std::string_view text, std::string_view suffix) { return text.ends_with(suffix); }

} // namespace fsdpc::rt
