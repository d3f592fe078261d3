#include "runtime/checkpoint/folder.h"

#include "runtime/checkpoint/manifest.h"
#include "runtime/common/file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace fsdpc::rt {
namespace {

constexpr std::string_view stepPrefix = "step-", trashPrefix = "trash-", temporaryMark = ".tmp-";

std::optional<std::int64_t> stepOf(std::string_view name) {
  if (!name.starts_with(stepPrefix) || name.size() < stepPrefix.size() + 8)
    return std::nullopt;
  const std::string_view digits = name.substr(stepPrefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || stepFolderName(step) != name)
    return std::nullopt;
  return step;
}

bool isLeftover(std::string_view name) {
  return name.starts_with(trashPrefix) ||
         (name.starts_with(stepPrefix) && name.find(temporaryMark) != std::string_view::npos);
}

/// Names in `folder`; empty if it cannot be read.
std::vector<std::string> namesIn(const std::string &folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

} // namespace

std::string stepFolderName(std::int64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return name;
}

std::string rankFileName(int rank) {
  char name[40];
  std::snprintf(name, sizeof name, "rank-%05d.safetensors", rank);
  return name;
}

std::vector<StepFolder> listCheckpoints(const std::string &folder) {
  std::vector<StepFolder> found;
  for (const std::string &name : namesIn(folder))
    if (const std::optional<std::int64_t> step = stepOf(name))
      found.push_back({*step, folder + "/" + name});
  std::sort(found.begin(), found.end(), [](const StepFolder &a, const StepFolder &b) { return a.step < b.step; });
  return found;
}

std::vector<std::string> checkpointsAt(const std::string &path) {
  if (fileExists(path + "/" + manifestName))
    return {path};
  std::vector<std::string> paths;
  for (const StepFolder &step : listCheckpoints(path))
    paths.push_back(step.path);
  if (paths.empty())
    throw Failure(ExitCode::usage, path + ": is neither a checkpoint nor a folder of checkpoints");
  return paths;
}

void removeLeftovers(const std::string &folder) {
  for (const std::string &name : namesIn(folder))
    if (isLeftover(name))
      removeFolder(folder + "/" + name);
}

void removeCheckpoint(const StepFolder &checkpoint) {
  const std::string folder = parentDirectory(checkpoint.path);
  const std::string trash = folder + "/" + std::string(trashPrefix) + stepFolderName(checkpoint.step);
  removeFolder(trash); // of a run that ended while it deleted this step
  renameDurably(checkpoint.path, trash);
  removeFolder(trash);
}

void removeOldCheckpoints(const std::string &folder, std::int64_t keepLatest,
                          const std::vector<std::int64_t> &keptSteps) {
  if (keepLatest == 0)
    return;
  const std::vector<StepFolder> all = listCheckpoints(folder);
  const std::size_t kept = std::min(all.size(), static_cast<std::size_t>(keepLatest));
  for (std::size_t i = 0; i + kept < all.size(); ++i)
    if (std::find(keptSteps.begin(), keptSteps.end(), all[i].step) == keptSteps.end())
      removeCheckpoint(all[i]);
}

FolderLock::FolderLock(const std::string &folder) {
  makeFolders(folder);
  const std::string path = folder + "/lock";
  descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0)
    throw Failure(ExitCode::storage, path + ": cannot create: " + std::strerror(errno));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
    return;
  ::close(descriptor);
  throw Failure(ExitCode::storage, folder + ": another run writes its checkpoints here; give --checkpoint_folder");
}

FolderLock::~FolderLock() { ::close(descriptor); }

void requireFreeSpace(const std::string &folder, std::int64_t bytes, const std::string &purpose) {
  struct statvfs status{};
  if (::statvfs(folder.c_str(), &status) != 0)
    throw Failure(ExitCode::storage, folder + ": cannot ask for its free space: " + std::strerror(errno));
  const auto free = static_cast<std::int64_t>(status.f_bavail * status.f_frsize);
  if (free < bytes)
    throw Failure(ExitCode::storage, folder + ": " + std::to_string(free) + " bytes are free, " +
                                         std::to_string(bytes) + " are needed for " + purpose);
}

} // namespace fsdpc::rt
