// Keeps the program's folder in place while the program runs.
#pragma once

namespace fsdpc::rt {

/// While this object exists, fsdpc refuses to replace the output folder. It holds a shared lock on the executable
/// (flock), which ends with the process, however that ends. Throws Failure{storage} if fsdpc is replacing the folder or
/// just replaced it. Does nothing on file systems without locks.
class FolderLease {
public:
  FolderLease();
  ~FolderLease();
  FolderLease(const FolderLease &) = delete;
  FolderLease &operator=(const FolderLease &) = delete;

private:
  int descriptor = -1;
};

} // namespace fsdpc::rt
