#include "runtime/cpu/mpi_window.h"

#include "runtime/cpu/window_store.h"

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <unistd.h>

namespace fsdpc::rt {
namespace {

struct Message {
  int exitCode = 0;
  char text[2048] = {};
};

struct Group {
  explicit Group(MPI_Comm communicator) : communicator(communicator) {
    MPI_Comm_rank(communicator, &rank);
    MPI_Comm_size(communicator, &size);
  }
  MPI_Comm communicator;
  int rank;
  int size;
};

/// Directories to try in order; "" is anonymous memory. Only rank 0's list is used.
std::vector<std::string> candidateStores() {
  if (const char *directory = std::getenv("FSDPC_WINDOW_DIRECTORY"))
    return {directory};
  const char *temporary = std::getenv("TMPDIR");
  return {"", "/dev/shm", temporary ? temporary : "/tmp", "/tmp"};
}

std::int64_t roundUpToPage(std::int64_t bytes) {
  const std::int64_t pageBytes = sysconf(_SC_PAGESIZE);
  return (bytes + pageBytes - 1) / pageBytes * pageBytes;
}

WindowStore openTogether(const Group &group, const std::string &directory, std::int64_t bytes) {
  WindowStore created;
  attemptTogether(group.communicator, [&] {
    if (group.rank == 0)
      created = directory.empty() ? WindowStore::anonymous(bytes) : WindowStore::inDirectory(directory, bytes);
  });
  WindowStore::Handle handle = created.handle();
  MPI_Bcast(&handle, sizeof handle, MPI_BYTE, 0, group.communicator);
  WindowStore opened;
  attemptTogether(group.communicator, [&] {
    if (group.rank != 0)
      opened = WindowStore::open(handle);
  });
  created.removeName();
  return group.rank == 0 ? std::move(created) : std::move(opened);
}

/// Returns the result of `open` for the first of rank 0's candidates that works on every rank. If none works, throws
/// the first failure.
template <class Open>
auto inFirstStore(const Group &group, Open open) {
  const std::vector<std::string> stores = candidateStores();
  int count = static_cast<int>(stores.size());
  MPI_Bcast(&count, 1, MPI_INT, 0, group.communicator);
  std::optional<Failure> first;
  for (int i = 0; i < count; ++i) {
    try {
      return open(group.rank == 0 ? stores[i] : "");
    } catch (const Failure &failure) {
      if (!first)
        first = failure;
    }
  }
  throw *first;
}

SharedWindows openIn(const Group &group, const std::string &directory, std::int64_t windowBytes, int controlRanks) {
  const std::int64_t controlOffset = windowBytes * group.size;
  const std::int64_t controlBytes = roundUpToPage(ControlBlock::bytesFor(controlRanks));
  WindowStore store = openTogether(group, directory, controlOffset + controlBytes);
  SharedWindows windows;
  attemptTogether(group.communicator, [&] {
    // Each rank reserves its own part, so that the pages come from the memory nearest to it.
    store.reserve(windowBytes * group.rank, windowBytes);
    if (group.rank == 0)
      store.reserve(controlOffset, controlBytes);
  });
  attemptTogether(group.communicator, [&] {
    windows.own = Arena::mapShared(store.file(), windowBytes * group.rank, windowBytes, Arena::Access::readWrite);
    for (int peer = 0; peer < group.size; ++peer)
      windows.peers.push_back(peer == group.rank ? Arena()
                                                 : Arena::mapShared(store.file(), windowBytes * peer, windowBytes,
                                                                    Arena::Access::readOnly));
    windows.control = Arena::mapShared(store.file(), controlOffset, controlBytes, Arena::Access::readWrite);
  });
  return windows;
}

} // namespace

void attemptTogether(MPI_Comm communicator, const std::function<void()> &attempt) {
  const Group group(communicator);
  Message message;
  int failed = group.size;
  try {
    attempt();
  } catch (const Failure &failure) {
    failed = group.rank;
    message.exitCode = static_cast<int>(failure.code);
    std::strncpy(message.text, failure.what(), sizeof message.text - 1);
  }
  int lowest;
  MPI_Allreduce(&failed, &lowest, 1, MPI_INT, MPI_MIN, communicator);
  if (lowest == group.size)
    return;
  MPI_Bcast(&message, sizeof message, MPI_BYTE, lowest, communicator);
  Failure failure(static_cast<ExitCode>(message.exitCode), message.text, true);
  failure.reportingRank = lowest;
  throw failure;
}

std::vector<const std::byte *> SharedWindows::addresses() const {
  std::vector<const std::byte *> result;
  for (const Arena &peer : peers)
    result.push_back(peer.bytes() ? peer.data() : own.data());
  return result;
}

SharedWindows openSharedWindows(MPI_Comm host, std::int64_t windowBytes, int controlRanks) {
  const Group group(host);
  return inFirstStore(
      group, [&](const std::string &directory) { return openIn(group, directory, windowBytes, controlRanks); });
}

Arena openSharedPage(MPI_Comm host, std::int64_t bytes) {
  const Group group(host);
  const std::int64_t mappedBytes = roundUpToPage(bytes);
  return inFirstStore(group, [&](const std::string &directory) {
    WindowStore store = openTogether(group, directory, mappedBytes);
    Arena page;
    attemptTogether(host, [&] {
      if (group.rank == 0)
        store.reserve(0, mappedBytes);
    });
    attemptTogether(host, [&] { page = Arena::mapShared(store.file(), 0, mappedBytes, Arena::Access::readWrite); });
    return page;
  });
}

} // namespace fsdpc::rt
