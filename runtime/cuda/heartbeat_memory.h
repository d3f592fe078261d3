// The heartbeat page that the ranks of one host share (runtime/common/heartbeat.h). Ranks agree on it by messages:
// processes of one host map the same memory, ranks of other hosts do not see it.
#pragma once

#include "runtime/common/heartbeat.h"
#include "runtime/cuda/host_group.h"

namespace fsdpc::rt {

class HeartbeatMemory {
public:
  /// Collective. If a host cannot share memory, each of its ranks has its own page.
  explicit HeartbeatMemory(HostGroup &group);
  ~HeartbeatMemory();
  HeartbeatMemory(const HeartbeatMemory &) = delete;
  HeartbeatMemory &operator=(const HeartbeatMemory &) = delete;
  /// Null for one rank, and if the system has no memory at all.
  HeartbeatPage *page() const { return memory ? HeartbeatPage::at(memory) : nullptr; }

private:
  void *memory = nullptr;
  std::size_t bytes;
};

} // namespace fsdpc::rt
