#include "runtime/common/folder_lease.h"

#include "runtime/common/failure.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdpc::rt {

FolderLease::FolderLease() {
  descriptor = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    return;
  const bool isBeingReplaced = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  struct stat status{};
  if (!isBeingReplaced && (::fstat(descriptor, &status) != 0 || status.st_nlink > 0))
    return;
  ::close(descriptor);
  throw Failure(ExitCode::storage, "fsdpc replaced the folder of this program while it started; start it again");
}

FolderLease::~FolderLease() {
  if (descriptor >= 0)
    ::close(descriptor);
}

} // namespace fsdpc::rt
