// The program's hold on the folder it runs from.
#pragma once

namespace fsdpc::rt {

/// While it lives, fsdpc refuses to replace the output folder: it shares a lock on the executable (flock), which goes
/// with the process, however that ends. Throws Failure{storage} where fsdpc replaces the folder, or just did. Where the
/// file system has no locks, it does nothing.
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
