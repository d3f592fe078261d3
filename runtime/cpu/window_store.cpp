#include "runtime/cpu/window_store.h"

#include "runtime/common/failure.h"
#include "runtime/cpu/host_memory.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fsdpc::rt {
namespace {

[[noreturn]] void fail(const std::string &what, int error) {
  throw Failure(ExitCode::memory, "window memory: " + what + ": " + std::strerror(error));
}

std::int64_t freeBytes(int file) {
  struct statvfs status;
  if (fstatvfs(file, &status) != 0 || status.f_blocks == 0)
    return readAvailableMemoryBytes();
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

} // namespace

WindowStore::WindowStore(WindowStore &&other) noexcept { *this = std::move(other); }

WindowStore &WindowStore::operator=(WindowStore &&other) noexcept {
  std::swap(file_, other.file_);
  std::swap(named_, other.named_);
  std::swap(handle_, other.handle_);
  return *this;
}

WindowStore::~WindowStore() {
  removeName();
  if (file_ >= 0)
    close(file_);
}

void WindowStore::describe(const std::string &path) {
  struct stat status;
  if (fstat(file_, &status) != 0)
    fail("stat " + path, errno);
  if (path.size() >= sizeof handle_.path)
    fail(path, ENAMETOOLONG);
  std::memcpy(handle_.path, path.c_str(), path.size() + 1);
  handle_.device = status.st_dev;
  handle_.inode = status.st_ino;
}

WindowStore WindowStore::anonymous(std::int64_t bytes) {
  WindowStore store;
  store.file_ = memfd_create("fsdpc-window", MFD_CLOEXEC);
  if (store.file_ < 0)
    fail("memfd_create", errno);
  if (ftruncate(store.file_, bytes) != 0)
    fail("size of " + describeBytes(bytes), errno);
  store.describe("/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(store.file_));
  return store;
}

WindowStore WindowStore::inDirectory(const std::string &directory, std::int64_t bytes) {
  const std::string pattern = directory + "/fsdpc-window-XXXXXX";
  std::vector<char> path(pattern.c_str(), pattern.c_str() + pattern.size() + 1);
  WindowStore store;
  store.file_ = mkostemp(path.data(), O_CLOEXEC);
  if (store.file_ < 0)
    fail("a file in " + directory, errno);
  store.named_ = true;
  store.describe(path.data());
  if (ftruncate(store.file_, bytes) != 0)
    fail("size of " + describeBytes(bytes) + " in " + directory, errno);
  return store;
}

WindowStore WindowStore::open(const Handle &handle) {
  WindowStore store;
  store.file_ = ::open(handle.path, O_RDWR | O_CLOEXEC);
  if (store.file_ < 0)
    fail(std::string("open ") + handle.path, errno);
  store.describe(handle.path);
  if (store.handle_.device != handle.device || store.handle_.inode != handle.inode)
    fail(std::string(handle.path) + " is another file here", ESTALE);
  return store;
}

void WindowStore::reserve(std::int64_t offsetBytes, std::int64_t bytes) {
  if (bytes == 0)
    return;
  int error;
  do
    error = posix_fallocate(file_, offsetBytes, bytes);
  while (error == EINTR);
  if (error != 0)
    fail("this rank's window needs " + describeBytes(bytes) + ", " + handle_.path + " has " +
             describeBytes(freeBytes(file_)) + " left",
         error);
}

void WindowStore::removeName() {
  if (named_)
    unlink(handle_.path);
  named_ = false;
}

void checkHostMemory(std::int64_t neededBytes, int ranks, std::int64_t availableBytes) {
  if (availableBytes < 0 || neededBytes <= availableBytes)
    return;
  throw Failure(ExitCode::memory, "the arenas of " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
                                      " on this host need " + describeBytes(neededBytes) + ", available are " +
                                      describeBytes(availableBytes));
}

} // namespace fsdpc::rt
