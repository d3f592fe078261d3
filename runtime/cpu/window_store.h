// The memory of the window arenas of one host: one file that every rank maps.
//
// Two kinds. `anonymous` is a memfd: no file system limits its size (containers often have 64 MB of /dev/shm), and
// peers open it through /proc/<pid>/fd/<n>. `inDirectory` is a file with a name, for hosts that do not allow this; its
// name is removed as soon as every rank has opened it. In both cases memory is allocated before a page is touched:
// `reserve` fails with a message, where an unbacked page would raise SIGBUS in the middle of a step.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

namespace fsdpc::rt {

class WindowStore {
public:
  /// The data that another rank needs to open the store, and to verify that it opened the same one. Plain data, sent
  /// over MPI.
  struct Handle {
    char path[512] = {};
    dev_t device = 0;
    ino_t inode = 0;
  };

  WindowStore() = default;
  WindowStore(WindowStore &&other) noexcept;
  WindowStore &operator=(WindowStore &&other) noexcept;
  ~WindowStore(); ///< closes; mappings stay valid

  /// Creates a store of `bytes`, without memory yet. Throws Failure{memory}.
  static WindowStore anonymous(std::int64_t bytes);
  static WindowStore inDirectory(const std::string &directory, std::int64_t bytes);
  /// Opens the store that another process created. Throws Failure{memory} if this process cannot access it.
  static WindowStore open(const Handle &handle);

  /// Allocates memory for [offsetBytes, offsetBytes + bytes). Throws Failure{memory} naming the needed and the
  /// available bytes.
  void reserve(std::int64_t offsetBytes, std::int64_t bytes);

  /// Removes the name of a store made by `inDirectory`. Does nothing for other stores.
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
/// `availableBytes` is the result of readAvailableMemoryBytes(); negative (unknown) passes.
void checkHostMemory(std::int64_t neededBytes, int ranks, std::int64_t availableBytes);

} // namespace fsdpc::rt
