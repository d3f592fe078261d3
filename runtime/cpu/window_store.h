// The memory behind the window arenas of one host: one file that every rank maps.
//
// Two kinds. `anonymous` is a memfd: no file system's size limits it (containers often give 64 MB of /dev/shm), and
// peers open it through /proc/<pid>/fd/<n>. `inDirectory` is a file with a name, for hosts where that is not allowed;
// its name is removed as soon as every rank has it open. Either way memory is had before a page is touched: `reserve`
// fails with a message, where a page without memory behind it would raise SIGBUS in the middle of a step.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

namespace fsdpc::rt {

class WindowStore {
public:
  /// What another rank needs to open the store, and to see that it opened the same one. Plain data, sent over MPI.
  struct Handle {
    char path[512] = {};
    dev_t device = 0;
    ino_t inode = 0;
  };

  WindowStore() = default;
  WindowStore(WindowStore &&other) noexcept;
  WindowStore &operator=(WindowStore &&other) noexcept;
  ~WindowStore(); ///< closes; mappings stay valid

  /// Create a store of `bytes`, without memory yet. Throw Failure{memory}.
  static WindowStore anonymous(std::int64_t bytes);
  static WindowStore inDirectory(const std::string &directory, std::int64_t bytes);
  /// Opens the store another process created. Throws Failure{memory} if this process cannot see it.
  static WindowStore open(const Handle &handle);

  /// Gets memory for [offsetBytes, offsetBytes + bytes). Throws Failure{memory} naming the needed and the available
  /// bytes.
  void reserve(std::int64_t offsetBytes, std::int64_t bytes);

  /// Removes the name of a store made by `inDirectory`; nothing for other stores.
  void removeName();

  int file() const { return file_; }
  const Handle &handle() const { return handle_; }

private:
  void describe(const std::string &path);

  int file_ = -1;
  bool named_ = false;
  Handle handle_;
};

/// Throws Failure{memory} if the host has less than `neededBytes` left for the arenas of its `ranks` ranks.
/// `availableBytes` as readAvailableMemoryBytes() gives it; negative (unknown) passes.
void checkHostMemory(std::int64_t neededBytes, int ranks, std::int64_t availableBytes);

} // namespace fsdpc::rt
