// Faults of disks and machines, put in on purpose. Only the test build has them (FSDPC_TEST_BUILD).
//
// FSDPC_DISK_FAULT=RANK:K:ACTION acts on the K-th moment of a rank (as given by the launcher; 0 without one). A moment
// is the time before or after an operation that creates, writes, syncs, renames or deletes a file or folder; they are
// counted from 1. ACTION is `kill`, `stop`, or the number of an error (errno) that the operation then reports instead
// of being done; after an operation it does nothing. FSDPC_DISK_FAULT=RANK:0:0 prints every moment.
#pragma once

namespace fsdpc::rt {

/// One operation, from before to after it.
class DiskOperation {
public:
  explicit DiskOperation(const char *name);
  ~DiskOperation();
  DiskOperation(const DiskOperation &) = delete;
  DiskOperation &operator=(const DiskOperation &) = delete;

  /// Whether the operation must report an error instead of being done; errno is set.
  bool fails() const;

private:
  const char *name;
  int error = 0;
};

} // namespace fsdpc::rt
