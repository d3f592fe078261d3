#include "runtime/cpu/host_memory.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace fsdpc::rt {
namespace {

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

/// Returns the number after `key` (which includes its colon or blank) at the start of a line.
std::optional<std::int64_t> readField(const std::string &path, const std::string &key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.compare(0, key.size(), key) == 0)
      if (std::int64_t value; std::istringstream(line.substr(key.size())) >> value)
        return value;
  return std::nullopt;
}

/// Reads a file with one number; "max" means no limit.
std::optional<std::int64_t> readNumber(const std::string &path) {
  std::ifstream file(path);
  std::string text;
  if (!(file >> text))
    return std::nullopt;
  std::int64_t value;
  if (std::istringstream(text) >> value)
    return value;
  return unlimited;
}

struct GroupFiles {
  const char *limit;
  const char *used;
  const char *cacheField;
};
constexpr GroupFiles version2{"/memory.max", "/memory.current", "inactive_file "};
constexpr GroupFiles version1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file "};

std::int64_t leftInGroup(const std::string &folder, const GroupFiles &files) {
  const auto limit = readNumber(folder + files.limit);
  const auto used = readNumber(folder + files.used);
  if (!limit || !used || *limit == unlimited)
    return unlimited;
  const std::int64_t cache = readField(folder + "/memory.stat", files.cacheField).value_or(0);
  return std::max<std::int64_t>(0, *limit - *used + cache);
}

/// The minimum left in the group at `path` and the groups above it. Inside a container the path may not exist. Then
/// only the root of the mount counts.
std::int64_t leftInHierarchy(const std::string &mount, std::string path, const GroupFiles &files) {
  std::int64_t left = leftInGroup(mount, files);
  while (!path.empty() && path != "/") {
    left = std::min(left, leftInGroup(mount + path, files));
    path.erase(path.rfind('/'));
  }
  return left;
}

std::int64_t leftInControlGroups(const std::string &root) {
  std::int64_t left = std::min(leftInHierarchy(root + "/sys/fs/cgroup", "", version2),
                               leftInHierarchy(root + "/sys/fs/cgroup/memory", "", version1));
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // Format: hierarchy:controllers:path
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (path.empty() || path.front() != '/')
      continue;
    if (controllers.empty())
      left = std::min(left, leftInHierarchy(root + "/sys/fs/cgroup", path, version2));
    else if (controllers.find("memory") != std::string::npos)
      left = std::min(left, leftInHierarchy(root + "/sys/fs/cgroup/memory", path, version1));
  }
  return left;
}

} // namespace

std::int64_t readAvailableMemoryBytes(const std::string &root) {
  const auto available = readField(root + "/proc/meminfo", "MemAvailable:");
  const auto swap = readField(root + "/proc/meminfo", "SwapFree:");
  const std::int64_t left = leftInControlGroups(root);
  if (!available)
    return left == unlimited ? -1 : left;
  return std::min(left, (*available + swap.value_or(0)) * 1024);
}

std::string describeBytes(std::int64_t bytes) {
  const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  char text[64];
  std::snprintf(text, sizeof text, "%lld bytes (%.1f %s)", static_cast<long long>(bytes), value, units[unit]);
  return text;
}

} // namespace fsdpc::rt
