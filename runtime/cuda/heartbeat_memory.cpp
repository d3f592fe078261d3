#include "runtime/cuda/heartbeat_memory.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace fsdpc::rt {
namespace {

/// What a rank tells the others about the page it created: its host's boot id, and a name in the host's shared memory.
struct Offer {
  char host[40] = {};
  char name[64] = {};
};

Offer makeOffer(int rank) {
  static std::atomic<int> made{0}; // ranks may be threads of one process
  Offer offer;
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::strncpy(offer.host, boot.c_str(), sizeof offer.host - 1);
  std::snprintf(offer.name, sizeof offer.name, "/fsdpc-%d-%d-%d-%lld", rank, ::getpid(), ++made,
                static_cast<long long>(monotonicNanoseconds()));
  return offer;
}

void *map(int file, std::size_t bytes) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void *memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

/// Zero bytes under a new name, or null.
void *create(const char *name, std::size_t bytes) {
  const int file = ::shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (file < 0)
    return nullptr;
  // Without this, missing memory would fail only at the first write.
  const bool isThere = ::posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0;
  void *memory = isThere ? map(file, bytes) : nullptr;
  ::close(file);
  return memory;
}

void *open(const char *name, std::size_t bytes) {
  const int file = ::shm_open(name, O_RDWR, 0);
  if (file < 0)
    return nullptr;
  void *memory = map(file, bytes);
  ::close(file);
  return memory;
}

} // namespace

HeartbeatMemory::HeartbeatMemory(HostGroup &group)
    : bytes(static_cast<std::size_t>(HeartbeatPage::bytesFor(group.size()))) {
  if (group.size() == 1)
    return;
  const Offer mine = makeOffer(group.rank());
  std::vector<Offer> offers(static_cast<std::size_t>(group.size()));
  group.exchange(&mine, sizeof mine, offers.data());
  const auto isHere = [&](const Offer &offer) { return std::strcmp(offer.host, mine.host) == 0; };
  const Offer *lowest = offers.data();
  while (!isHere(*lowest))
    ++lowest;
  const bool makes = std::strcmp(lowest->name, mine.name) == 0;
  if (makes)
    memory = create(mine.name, bytes);
  int ready = 0;
  std::vector<int> all(offers.size());
  group.exchange(&ready, sizeof ready, all.data());
  if (!makes)
    memory = open(lowest->name, bytes);
  group.exchange(&ready, sizeof ready, all.data());
  if (makes)
    ::shm_unlink(mine.name);
  if (!memory)
    memory = map(-1, bytes);
}

HeartbeatMemory::~HeartbeatMemory() {
  if (memory)
    ::munmap(memory, bytes);
}

} // namespace fsdpc::rt
