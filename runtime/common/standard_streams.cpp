#include "runtime/common/standard_streams.h"

#include <csignal>
#include <fcntl.h>
#include <initializer_list>
#include <unistd.h>

namespace fsdpc::rt {

void openStandardStreams() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(number, F_GETFD) < 0) // open returns the lowest free descriptor, which is this one
      static_cast<void>(::open("/dev/null", number == STDIN_FILENO ? O_RDONLY : O_WRONLY));
  std::signal(SIGPIPE, SIG_IGN);
}

} // namespace fsdpc::rt
