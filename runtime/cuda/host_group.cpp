#include "runtime/cuda/host_group.h"

#include <algorithm>
#include <array>
#include <unistd.h>
#include <vector>

namespace fsdpc::rt {

std::string nameOfHost() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

int ranksOfHost(HostGroup &group, const std::string &hostName) {
  std::array<char, 256> mine = {};
  std::copy_n(hostName.begin(), std::min(hostName.size(), mine.size()), mine.begin());
  std::vector<std::array<char, 256>> all(static_cast<std::size_t>(group.size()));
  group.exchange(mine.data(), static_cast<std::int64_t>(mine.size()), all.data());
  return static_cast<int>(std::count(all.begin(), all.end(), mine));
}

} // namespace fsdpc::rt
