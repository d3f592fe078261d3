// Messages between the ranks of a job outside the step: start-up, agreement, saving. They are small and pass between
// the hosts' processors. Nothing here is fast.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace fsdpc::rt {

class HostGroup {
public:
  virtual ~HostGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Collective: `all` receives size() x `bytes` in rank order.
  virtual void exchange(const void *mine, std::int64_t bytes, void *all) = 0;
  /// Rank 0 receives the same; `all` is null elsewhere.
  virtual void gatherToRoot(const void *mine, std::int64_t bytes, void *all) = 0;
  virtual void broadcast(void *data, std::int64_t bytes) = 0; ///< from rank 0
};

/// The host's own name for itself. Another host may not know it by that name.
std::string nameOfHost();

/// The number of ranks with the same host name, which share that host's cores. Collective.
int ranksOfHost(HostGroup &group, const std::string &hostName);

} // namespace fsdpc::rt
