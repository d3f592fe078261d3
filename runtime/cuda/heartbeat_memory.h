// The page of signs of life that the ranks of one host share (runtime/common/heartbeat.h), found through the ranks' own
// messages: processes of one host map the same memory, others have none in common and do not see each other.
#pragma once

#include "runtime/common/heartbeat.h"
#include "runtime/cuda/host_group.h"

namespace fsdpc::rt {

class HeartbeatMemory {
public:
  /// Collective. Where a host has no memory to share, each of its ranks has a page of its own.
  explicit HeartbeatMemory(HostGroup &group);
  ~HeartbeatMemory();
  HeartbeatMemory(const HeartbeatMemory &) = delete;
  HeartbeatMemory &operator=(const HeartbeatMemory &) = delete;
  /// Null for one rank, and where the system has no memory at all.
  HeartbeatPage *page() const { return memory ? HeartbeatPage::at(memory) : nullptr; }

private:
  void *memory = nullptr;
  std::size_t bytes;
};

} // namespace fsdpc::rt
