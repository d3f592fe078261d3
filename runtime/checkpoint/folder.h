// The folder of --checkpoint_folder: names, and the operations that make a checkpoint appear or disappear as a whole.
//
// A checkpoint is written to `step-<8 digits>.tmp-<run>` and gets its name by one rename, after all its files and
// folders are on the disk. It is deleted by a rename to `trash-...` first. So a folder named `step-<8 digits>` is
// complete at every moment. Whether it is also intact is found by reading it; no file says which is the latest.
//
// Throws Failure{storage} naming the path.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc::rt {

struct StepFolder {
  std::int64_t step = 0;
  std::string path;
};

std::string stepFolderName(std::int64_t step);
/// The file of a rank, in the folder of a step: "rank-00002.safetensors".
std::string rankFileName(int rank);

/// The checkpoints in `folder`, by step. Empty if there is no such folder.
std::vector<StepFolder> listCheckpoints(const std::string &folder);

/// The checkpoints that `path` names, by step: itself, or those of a folder. Throws Failure{usage} if there are none.
std::vector<std::string> checkpointsAt(const std::string &path);

/// Removes what runs that ended early have left in `folder`: unfinished checkpoints, and those that were being deleted.
void removeLeftovers(const std::string &folder);
/// Deletes a checkpoint.
void removeCheckpoint(const StepFolder &checkpoint);
/// Deletes the oldest checkpoints but `keepLatest`, and never those of `keptSteps`. 0: keeps all.
void removeOldCheckpoints(const std::string &folder, std::int64_t keepLatest,
                          const std::vector<std::int64_t> &keptSteps);

/// While this object exists, no other run may write to `folder`. It holds a lock of the kernel (flock) that ends with
/// the process. Does nothing on file systems without locks.
class FolderLock {
public:
  /// Creates the folder if needed. Throws Failure{storage} if another run has the lock.
  explicit FolderLock(const std::string &folder);
  ~FolderLock();
  FolderLock(const FolderLock &) = delete;
  FolderLock &operator=(const FolderLock &) = delete;

private:
  int descriptor = -1;
};

/// Throws Failure{storage}, with all figures, unless the file system of `folder` has `bytes` left for this user.
void requireFreeSpace(const std::string &folder, std::int64_t bytes, const std::string &purpose);

} // namespace fsdpc::rt
