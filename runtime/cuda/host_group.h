// What the ranks of a job tell each other outside the step: start-up, agreement, saving. Small messages between hosts'
// processors; nothing here is fast.
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

/// As the host calls itself; another host may not know it by that name.
std::string nameOfHost();

/// How many ranks give the same name: those of one host, which share its cores. Collective.
int ranksOfHost(HostGroup &group, const std::string &hostName);

} // namespace fsdpc::rt
